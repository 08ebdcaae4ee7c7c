// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Of a deleted node, only a pending change is kept, which may be that of a new node with
// the same name.
func TestForgottenNodeKeepsOnlyThePendingChange(t *testing.T) {
	fill := func(s *nodeStates) {
		s.keep(&gateset.Set{}, &gate.Node{Name: "n", UID: "u"}, &gate.Decision{Verdicts: []gate.Verdict{{Gate: "a", Lost: []gate.Lost{{Since: time.Now()}}}}}, false, nil)
		s.settle("n", 1, time.Time{})
		s.newlyIgnored("n", map[string]string{"a": "cause"})
		s.failed("n", true, time.Now())
	}
	s := newNodeStates()
	fill(s)
	if s.forget("n"); len(s.byName) != 0 {
		t.Errorf("a deleted node still has the state %+v", s.byName["n"])
	}
	fill(s)
	s.addChange("n", flipOf("a"))
	s.forget("n")
	state := s.byName["n"]
	if state == nil || state.change.IsNothing() {
		t.Fatalf("the pending change was dropped: %+v", state)
	}
	if state.carried != nil || state.settledUnder != 0 || state.ignored != nil || s.succeeded("n") {
		t.Errorf("more than the change is kept: %+v", state)
	}
}
