// SPDX-License-Identifier: Apache-2.0

package writers

import (
	"slices"
	"testing"

	"github.com/nodegate/nodegate/presets"
)

// Presets document the other writers of their keys, so a key of the list that no preset has is
// outdated or misspelled.
func TestKeysAreThoseOfPresets(t *testing.T) {
	for _, w := range All {
		if !slices.Contains(presets.TaintKeys(), w.Key) {
			t.Errorf("no preset has the key %s of %s", w.Key, w.Program)
		}
	}
}

func TestOf(t *testing.T) {
	if known := Of("cni.istio.io/not-ready"); len(known) != 1 || known[0].Program != Istiod {
		t.Errorf("known writers: %v", known)
	}
	if known := Of("example.com/other"); known != nil {
		t.Errorf("known writers of an unknown key: %v", known)
	}
}
