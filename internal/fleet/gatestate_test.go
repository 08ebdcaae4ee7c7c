// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// A gate that keeps its state while it is paused counts by its own state, not by that of
// the override that its record notes.
func TestBudgetOfOverriddenPausedGate(t *testing.T) {
	paused := gate.Gate{
		Name: "gate", Mode: v1alpha1.ModePaused, Accepted: true, Source: v1alpha1.SourceCRD, Selector: labels.Everything(),
		Taint: v1alpha1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule},
	}
	for name, c := range map[string]struct {
		record gate.Record
		want   bool
	}{
		"closed under the budget, overridden open": {gate.Record{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRegression, Override: v1alpha1.StateOpen}, true},
		"open, overridden closed":                  {gate.Record{State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Override: v1alpha1.StateClosed}, false},
		"no member, overridden closed":             {gate.Record{State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonOverridden, Override: v1alpha1.StateClosed}, false},
	} {
		c.record.Taint, c.record.Source = gate.TaintText(paused.Taint), paused.Source
		f := gate.Facts{Node: gate.Node{Name: "n1", Records: map[string]string{"gate": c.record.String()}}}
		d := gate.Decide([]gate.Gate{paused}, &f, time.Unix(1e9, 0))
		v := &d.Verdicts[0]
		s := GateState{Gate: v.Gate, Selected: v.Selected, State: v.After, Reason: v.Reason}
		s.SetOverride(v)
		if s.budgeted() != c.want || s.Override != c.record.Override {
			t.Errorf("%s: budgeted %t, override %q; want %t, %q", name, s.budgeted(), s.Override, c.want, c.record.Override)
		}
	}
}

// A node without a record, on which the API server denied closing a gate that an override keeps
// open, does not count against the budget: nothing was written.
func TestBudgetOfUnwrittenOverriddenGate(t *testing.T) {
	existing := gate.Gate{
		Name: "gate", Accepted: true, Source: v1alpha1.SourceCRD, Selector: labels.Everything(), Existing: v1alpha1.ExistingClose,
		Taint: v1alpha1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule},
	}
	now := time.Unix(1e9, 0)
	o := gate.Override{State: v1alpha1.StateOpen, Until: now.Add(time.Hour), Reason: "test", UID: "uid"}
	f := gate.Facts{Granted: map[string]bool{"gate": true}, Node: gate.Node{
		Name: "n1", UID: "uid", Created: now.Add(-time.Hour), Overrides: map[string]string{"gate": o.String()},
	}}
	d := gate.Decide([]gate.Gate{existing}, &f, now)
	v := &d.Verdicts[0]
	s := GateState{Gate: v.Gate, Selected: v.Selected, State: v.After, Reason: v.Reason}
	s.SetOverride(v)
	if !s.budgeted() {
		t.Fatalf("the decision does not close the gate under the budget: %+v", v)
	}
	s.SetUnwritten(v, "")
	if s.budgeted() || s.State != "" {
		t.Errorf("after the denied write: budgeted %t, state %q; want false and none", s.budgeted(), s.State)
	}
}
