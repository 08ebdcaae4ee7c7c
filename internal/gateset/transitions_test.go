// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// A repeated write has records of its own, which differ from those of the first attempt in times.
func TestTransitionsOfAnEarlierAttempt(t *testing.T) {
	first, second := time.Unix(1000, 0), time.Unix(1001, 0)
	record := func(state string, at time.Time) string {
		r := gate.Record{State: state, Source: "crd", Boot: "boot", Since: at, OverrideSince: at, SilentSince: at, FoughtAt: at}
		return r.String()
	}
	before := gate.Node{Name: "n", UID: "1"}
	written := gateset.TransitionsOf(nil, &before, &gate.Decision{
		Records:  map[string]string{"a": record(v1alpha1.StateOpen, second)},
		Verdicts: []gate.Verdict{{Gate: "a", Before: v1alpha1.StateClosed, After: v1alpha1.StateOpen}},
	})
	for name, test := range map[string]struct {
		state string
		uid   types.UID
		want  bool
	}{
		"carried out":     {v1alpha1.StateOpen, "1", true},
		"not carried out": {v1alpha1.StateClosed, "1", false},
		"another node":    {v1alpha1.StateOpen, "2", false},
	} {
		n := gate.Node{Name: "n", UID: test.uid, Records: map[string]string{"a": record(test.state, first)}}
		if got := written.AreOn(&n); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
	for gates, want := range map[string]bool{"a": true, "b": false} {
		if got := written.Share(map[string]string{gates: ""}); got != want {
			t.Errorf("a write of gate %s shares a record: %t, want %t", gates, got, want)
		}
	}
}
