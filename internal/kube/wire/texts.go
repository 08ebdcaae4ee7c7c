// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
)

// Few texts are shared by many objects: keys of labels, types of conditions, versions.
const (
	textsMax = 1 << 12
	// textMax is the maximum length of a cached text, in bytes.
	textMax = 256
)

// texts is a cache that lets equal texts share memory. Each text may be in one of two
// slots. If two common texts compete for one slot, each soon has a slot of its own; with
// a single slot, they would cost an allocation each time. It is safe for concurrent use
// and takes no lock.
type texts struct {
	seed  maphash.Seed
	known [textsMax]atomic.Pointer[string]
}

func newTexts() *texts { return &texts{seed: maphash.MakeSeed()} }

// of returns the text of b. It does not share memory with b.
func (t *texts) of(b []byte) string {
	if len(b) == 0 || len(b) > textMax {
		return string(b)
	}
	hash := maphash.Bytes(t.seed, b)
	slots := [2]*atomic.Pointer[string]{&t.known[hash%textsMax], &t.known[hash/textsMax%textsMax]}
	for _, slot := range slots {
		if known := slot.Load(); known != nil && *known == string(b) {
			return *known
		}
	}
	text := string(b)
	slots[rand.N(len(slots))].Store(&text)
	return text
}
