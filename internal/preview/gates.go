// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// gateSet is the set of gates before or after the change.
type gateSet struct {
	gates    []gate.Gate
	declared map[string]*v1alpha1.NodeGate
	accepted map[string]gate.Acceptance
	keys     map[string]bool
}

// Needs returns what must be known about nodes to predict a change.
func (w *World) Needs(c Change, sets *gate.DaemonSets) gate.Needs {
	var all gate.Needs
	for _, declared := range [][]v1alpha1.NodeGate{w.Declared, c.Apply} {
		for i := range declared {
			g, _ := signal.Compile(&declared[i], v1alpha1.SourceCRD) // an invalid gate needs nothing
			all.Add(g.Needs(sets))
		}
	}
	return all
}

// WantsPods reports whether all pods must be known to predict the change.
func (c Change) WantsPods() bool {
	return slices.ContainsFunc(c.Apply, func(g v1alpha1.NodeGate) bool {
		return evicts(&g) || g.Spec.ExistingNodes == v1alpha1.ExistingCloseIfIdle
	})
}

// changed returns the gates after the change, and the action for each gate of the
// change.
func (w *World) changed(c Change) ([]v1alpha1.NodeGate, map[string]Action) {
	actions := make(map[string]Action, len(c.Apply)+len(c.Delete))
	for _, name := range c.Delete {
		actions[name] = Delete
	}
	after := slices.Clone(w.Declared)
	after = slices.DeleteFunc(after, func(g v1alpha1.NodeGate) bool { return actions[g.Name] == Delete })
	for i := range c.Apply {
		g := *c.Apply[i].DeepCopy()
		at := slices.IndexFunc(after, func(now v1alpha1.NodeGate) bool { return now.Name == g.Name })
		if at < 0 {
			g.CreationTimestamp = metav1.NewTime(w.Now)
			actions[g.Name], after = Create, append(after, g)
			continue
		}
		g.CreationTimestamp, g.UID = after[at].CreationTimestamp, after[at].UID
		if actions[g.Name] = Modify; equality.Semantic.DeepEqual(g.Spec, after[at].Spec) {
			actions[g.Name] = Keep
			continue
		}
		after[at] = g
	}
	return after, actions
}

// compile compiles gates and determines which of them would be in force.
func (w *World) compile(declared []v1alpha1.NodeGate) *gateSet {
	s := &gateSet{declared: make(map[string]*v1alpha1.NodeGate, len(declared)), keys: make(map[string]bool)}
	invalid := make(map[string]error)
	for i := range declared {
		g, err := signal.Compile(&declared[i], v1alpha1.SourceCRD)
		if err != nil {
			invalid[g.Name] = err
		}
		s.declared[g.Name] = &declared[i]
		s.gates = append(s.gates, g)
	}
	slices.SortFunc(s.gates, func(a, b gate.Gate) int { return cmp.Compare(a.Name, b.Name) })
	s.accepted = gate.Accept(s.gates, w.Policy)
	for i := range s.gates {
		g := &s.gates[i]
		a := s.accepted[g.Name]
		if err := invalid[g.Name]; err != nil {
			a = gate.Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
		} else if status, rejected := w.rejectedByController(s.declared[g.Name]); a.Accepted && rejected {
			a = status
		}
		g.Accepted, s.accepted[g.Name] = a.Accepted, a
		g.PlainOptOut = w.Policy.PlainOptOut
		if g.Mode == v1alpha1.ModeDryRun {
			continue
		}
		for _, t := range g.Taints() {
			s.keys[t.Key] = true
		}
	}
	return s
}

// rejectedByController returns the controller's result for a gate that the controller
// rejects because of something that could not be read here.
func (w *World) rejectedByController(ng *v1alpha1.NodeGate) (gate.Acceptance, bool) {
	c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != ng.Generation {
		return gate.Acceptance{}, false
	}
	unread := c.Reason == v1alpha1.ReasonTaintKeyNotAllowed && w.Policy.Allowed == nil ||
		c.Reason == v1alpha1.ReasonOwnedByNodeReadinessRule && w.Policy.Managed == nil
	return gate.Acceptance{Reason: c.Reason, Message: c.Message}, unread
}

func (s *gateSet) gate(name string) *gate.Gate {
	i, found := slices.BinarySearchFunc(s.gates, name, func(g gate.Gate, name string) int { return cmp.Compare(g.Name, name) })
	if !found {
		return nil
	}
	return &s.gates[i]
}

// decide decides about a node to which budget for some gates is granted.
func (s *gateSet) decide(w *World, f gate.Facts, granted map[string]bool, now time.Time) gate.Decision {
	f.Transient.GateKeys = s.keys
	f.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	f.Allowed = w.Policy.Allowed
	f.Granted = granted
	f.AllPods = w.podsOn(f.Node.Name)
	f.LeftSince = make(map[string]time.Time, len(s.gates)) // as if LeavesAfter had passed, for the final state
	for i := range s.gates {
		f.LeftSince[s.gates[i].Name] = now.Add(-gate.LeavesAfter)
	}
	return gate.Decide(s.gates, &f, now)
}

// podsOn returns the pods of a node, or nil if they are unknown.
func (w *World) podsOn(node string) *gate.PodList {
	if w.Pods == nil {
		return nil
	}
	if list := w.Pods[node]; list != nil {
		return list
	}
	return &gate.PodList{At: w.Now}
}
