// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Needs returns what must be known about nodes to predict a change.
func (w *World) Needs(c Change, sets *gate.DaemonSets) gate.Needs {
	all := w.compile(w.Declared).Needs(sets)
	all.Add(w.compile(c.Apply).Needs(sets))
	return all
}

// WantsPods reports whether all pods must be known to predict the change: its own gates or
// those that it affects close on idle nodes, or can evict pods.
func (p *Preview) WantsPods() bool { return p.wantsPods }

// wantsPods reports whether all pods must be known to predict what a gate would do.
func (t *predictor) wantsPods(name string) bool {
	g := t.after.Declared[name]
	return g != nil && (evicts(g) || g.Spec.ExistingNodes == v1alpha1.ExistingCloseIfIdle)
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
func (w *World) compile(declared []v1alpha1.NodeGate) *gateset.Set {
	return gateset.Of(declared, w.Policy, gateset.StatusForUnknownPolicy)
}

// decide decides about a node to which budget for some gates is granted.
func (w *World) decide(set *gateset.Set, f gate.Facts, granted map[string]bool) gate.Decision {
	f.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	f.Allowed = w.Policy.Allowed
	f.Granted = granted
	f.AllPods = w.podsOn(f.Node.Name)
	f.LeftSince = make(map[string]time.Time, len(f.Node.Records)) // as if LeavesAfter had passed, for the final state
	for name := range f.Node.Records {
		f.LeftSince[name] = w.Now.Add(-gate.LeavesAfter)
	}
	return set.Decide(&f, w.Now)
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
