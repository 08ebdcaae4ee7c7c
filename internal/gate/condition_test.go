// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func publishing(g *Gate) { g.Deadline = Deadline{Ready: 30 * time.Minute, Publish: true} }

// condition adds the condition of a gate to the node.
func (s *sim) condition(gateName string, status corev1.ConditionStatus) *sim {
	s.facts.Node.Conditions = append([]Condition{{Type: conditionType(gateName), Status: status}}, s.facts.Node.Conditions...)
	return s
}

func overdue(r *Record) { r.Overdue = true }

// When does a decision write or remove the condition, and when does it wait for a grant?
func TestConditions(t *testing.T) {
	g := aGate("g", publishing)
	held := func(change ...func(*Record)) *sim {
		return aNode(g).taint("g.example/not-ready:NoSchedule").record("g", v1alpha1.StateClosed, append([]func(*Record){overdue}, change...)...)
	}
	with := func(s *sim, change func(*Gate)) *sim { change(&s.gates[0]); return s }
	on := func(s *sim) *sim { return s.condition("g", corev1.ConditionTrue) }
	const (
		nothing = ""
		written = "written"
		removed = "removed"
		waits   = "waits"
	)
	for name, c := range map[string]struct {
		node *sim
		want string
	}{
		"overdue":                             {held().granting("g"), written},
		"overdue, not granted":                {held(), waits},
		"it exists":                           {on(held()), nothing},
		"another writer has set it to False":  {held().condition("g", corev1.ConditionFalse).granting("g"), written},
		"the same, not granted":               {held().condition("g", corev1.ConditionFalse), waits},
		"the deadline passes by the decision": {held(func(r *Record) { r.Overdue = false }).granting("g"), nothing},
		"not overdue":                         {with(held(func(r *Record) { r.Overdue = false }), func(g *Gate) { g.Deadline.Ready = 2 * day }).granting("g"), nothing},
		"the deadline is extended":            {on(with(held(), func(g *Gate) { g.Deadline.Ready = 2 * day })), removed},
		"no condition is wanted":              {with(held(), func(g *Gate) { g.Deadline.Publish = false }).granting("g"), nothing},
		"no longer":                           {on(with(held(), func(g *Gate) { g.Deadline.Publish = false })), removed},
		"the gate opens":                      {on(held().flag("g", "holds")), removed},
		"the gate is open":                    {on(aNode(g).open("g")), removed},
		"a user opens the gate":               {on(held().override("g", v1alpha1.StateOpen, time.Hour)), removed},
		"a user keeps it closed":              {on(held().override("g", v1alpha1.StateClosed, time.Hour)), nothing},
		"a new boot":                          {on(held()).boot("b"), removed},
		"the same, unobserved":                {on(held()).bootUnobserved("b"), removed},
		"unreachable":                         {held().ready("Unknown").granting("g"), nothing},
		"unreachable, and it exists":          {on(held().ready("Unknown")), nothing},
		"shutting down":                       {held().shuttingDown(true).granting("g"), nothing},
		"being set up":                        {held().taint("node.cloudprovider.kubernetes.io/uninitialized:NoSchedule").granting("g"), nothing},
		"a signal that is not observed":       {with(held(), waitingFor(unseenSignal{})).granting("g"), nothing},
		"the same, and it exists":             {on(with(held(), waitingFor(unseenSignal{}))), nothing},
		"paused":                              {on(with(held(), func(g *Gate) { g.Mode = v1alpha1.ModePaused })), removed},
		"dry run":                             {on(with(held(), func(g *Gate) { g.Mode = v1alpha1.ModeDryRun })), removed},
		"not accepted":                        {with(held(), refused).granting("g"), nothing},
		"not accepted, and it exists":         {on(with(held(), refused)), nothing},
		"not readable":                        {on(with(held(), func(g *Gate) { g.Broken = true })), nothing},
		"no longer selected":                  {on(with(held(), selecting("a=b"))), removed},
		"no member, no record":                {on(with(aNode(g), selecting("a=b"))), removed},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.node.decide()
			got := nothing
			condition, decided := d.Conditions["g"]
			v := d.Verdict("g")
			switch {
			case decided && condition == nil:
				got = removed
			case decided:
				got = written
			case v != nil && v.Wants == WantCondition:
				got = waits
			}
			if got != c.want || len(d.Conditions) > 1 {
				t.Fatalf("got %q, want %q: %v, %s", got, c.want, d.Conditions, show(d))
			}
			if had := c.node.facts.Node.published()["g"] == corev1.ConditionTrue; v != nil &&
				(v.WasPublished != had || v.Published != (got == written || had && got == nothing)) {
				t.Errorf("was %t, is %t", v.WasPublished, v.Published)
			}
			if d.Settled && (got == waits) {
				t.Error("a node that waits for its condition is settled")
			}
		})
	}
}

// While feeds are loading, no condition is written. The decision is repeated, because nothing
// else may cause one when that ends.
func TestConditionWaitsForLoading(t *testing.T) {
	s := aNode(aGate("g", publishing)).taint("g.example/not-ready:NoSchedule").record("g", v1alpha1.StateClosed, overdue).granting("g")
	s.facts.Loading = true
	if d := s.decide(); len(d.Conditions) > 0 || !d.Recheck.Equal(s.now.Add(loadingRecheck)) {
		t.Errorf("conditions %v, recheck %s, want none, and %s", d.Conditions, d.Recheck, s.now.Add(loadingRecheck))
	}
	s.facts.Loading = false
	if d := s.after(loadingRecheck).decide(); d.Conditions["g"] == nil {
		t.Errorf("no condition when everything is loaded: %s", show(d))
	}
}

// A decision by which a deadline passes is repeated at once for the condition. The time at which
// another gate opens is known nevertheless.
func TestConditionHidesNoOtherWait(t *testing.T) {
	s := aNode(aGate("g", publishing), aGate("other", soaking(time.Hour))).flag("other", "holds")
	s.taint("g.example/not-ready:NoSchedule", "other.example/not-ready:NoSchedule")
	s.record("g", v1alpha1.StateClosed).record("other", v1alpha1.StateClosed, func(r *Record) { r.Reason = v1alpha1.ReasonRegression })
	if d := s.run(t); !d.Changes || !d.Again || d.Settled || !d.Recheck.Equal(s.now.Add(time.Hour)) {
		t.Errorf("%s, is repeated: %t, settled: %t, recheck in %s", show(d), d.Again, d.Settled, d.Recheck.Sub(s.now))
	}
	if d := s.decide(); d.Again {
		t.Errorf("is repeated once more: %s", show(d))
	}
}

// The condition names the gate and what it waits for.
func TestConditionMessage(t *testing.T) {
	s := aNode(aGate("g", publishing)).taint("g.example/not-ready:NoSchedule").record("g", v1alpha1.StateClosed, overdue).granting("g")
	c := s.decide().Conditions["g"]
	if c == nil || c.Type != "deadline.nodegate.dev/g" || c.Status != corev1.ConditionTrue || c.Reason != "DeadlinePassed" || !c.LastTransitionTime.Time.Equal(s.now) {
		t.Fatalf("%+v", c)
	}
	if want := "gate g is closed on this node and its deadline has passed; it waits for: signal g: "; !strings.HasPrefix(c.Message, want) {
		t.Errorf("message %q, want %q", c.Message, want)
	}
}

// Conditions of gates that do not exist are removed, unless it is not known whether they
// exist and they have a record.
func TestConditionsOfUnknownGates(t *testing.T) {
	s := aNode().taint("g.example/not-ready:NoSchedule").record("g", v1alpha1.StateClosed, overdue).condition("g", corev1.ConditionTrue).condition("h", corev1.ConditionTrue)
	s.facts.CompleteSources = nil
	d := s.decide()
	if _, removed := d.Conditions["h"]; len(d.Conditions) != 1 || !removed {
		t.Errorf("the source is not complete: %v", d.Conditions)
	}
	s.facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	if d = s.decide(); len(d.Conditions) != 2 {
		t.Errorf("the gates were deleted: %v", d.Conditions)
	}
	s.facts.Part = true
	if d = s.decide(); len(d.Conditions) != 0 {
		t.Errorf("a decision about a part of the gates: %v", d.Conditions)
	}
}

// A change of a gate's condition concerns its gate, and those that read it.
func TestConditionsAndParts(t *testing.T) {
	parts := Divide([]Gate{aGate("g", publishing), aGate("h")}, nil)
	part, some := parts.Touched(ChangeOf(Aspect{Kind: AspectCondition, Name: "deadline.nodegate.dev/g"}))
	if !some || len(part.Gates) != 1 || part.Gates[0].Name != "g" {
		t.Errorf("%t, %v", some, part.Gates)
	}
	if _, some := parts.Touched(ChangeOf(Aspect{Kind: AspectCondition, Name: "deadline.nodegate.dev/z"})); some {
		t.Error("a condition of an unknown gate does not concern all gates")
	}
}
