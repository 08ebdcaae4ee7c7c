// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/preview"
	"github.com/nodegate/nodegate/internal/writers"
)

// complete adds to all suggestions what their taints require.
func (f *finder) complete(all []Suggestion) {
	waiting := f.waiting(all)
	for i := range all {
		s := &all[i]
		for _, d := range s.daemons {
			s.DaemonSets = append(s.DaemonSets, d.String())
			if d.Status.ObservedGeneration > 0 && d.Status.DesiredNumberScheduled == 0 {
				s.Notes = append(s.Notes, "DaemonSet "+d.String()+" currently runs on no node")
			}
		}
		for _, t := range s.taints {
			s.Taints = append(s.Taints, gate.TaintText(t))
			if s.Use != UseLabel && !f.Policy.Allowed.Allows(t) {
				s.AllowKeys = append(s.AllowKeys, allowed(t))
			}
			s.Writers = append(s.Writers, f.writers(t.Key)...)
			s.Tolerations = append(s.Tolerations, f.missing(s, t, waiting)...)
		}
	}
}

// allowed returns a taint in the form of --allowed-taint-keys.
func allowed(t v1alpha1.Taint) string {
	if t.Effect == corev1.TaintEffectNoSchedule {
		return t.Key
	}
	return gate.IDOf(t).String()
}

// writers returns the other writers of a taint key.
func (f *finder) writers(key string) (all []Writer) {
	for _, w := range writers.Of(key) {
		all = append(all, Writer{Key: w.Key, Program: w.Program, How: w.How})
	}
	if rule := f.Policy.Managed[key]; rule != "" {
		all = append(all, Writer{Key: key, Program: "NodeReadinessRule " + rule, How: "node-readiness-controller adds and removes the taint; delete the rule, or change the gate's key"})
	}
	return all
}

// waiter is a gate and the DaemonSets that it waits for.
type waiter struct {
	gate    string
	daemons []*daemon
	taints  []v1alpha1.Taint
	nodes   labels.Selector
}

// waiting returns the suggested gates and the existing ones, with the DaemonSets that they
// wait for. Suggestions that are only possible do not count, because they may not be followed.
func (f *finder) waiting(all []Suggestion) (out []waiter) {
	for i := range f.Gates {
		ng := &f.Gates[i]
		w := waiter{gate: ng.Name, taints: ng.Spec.Taints(), nodes: nodesOf(ng)}
		for j := range f.daemons {
			if d := &f.daemons[j]; slices.ContainsFunc(d.covered, func(c Coverage) bool { return c.Gate == ng.Name && c.InForce }) {
				w.daemons = append(w.daemons, d)
			}
		}
		for j := range all {
			if s := &all[j]; s.Use == UseLabel && s.Gate == ng.Name && s.Certainty != Possible {
				w.daemons = append(w.daemons, s.daemons...)
			}
		}
		out = append(out, w)
	}
	for i := range all {
		if s := &all[i]; s.Use != UseLabel && s.Certainty != Possible {
			out = append(out, waiter{gate: s.Gate, daemons: s.daemons, taints: s.taints, nodes: s.nodes})
		}
	}
	return out
}

// selfDeadlock is the consequence if a gate's own DaemonSets lack a toleration.
const selfDeadlock = "otherwise the gate keeps off new nodes what it waits for, and never opens there"

// missing returns the DaemonSets that do not tolerate a taint of a suggested gate: those that
// the gate waits for, and those that other gates on the same nodes wait for.
func (f *finder) missing(s *Suggestion, t v1alpha1.Taint, waiting []waiter) (all []Toleration) {
	for _, d := range s.daemons {
		all = s.addMissing(all, d, t, true, true, selfDeadlock)
	}
	for i := range waiting {
		w := &waiting[i]
		if w.gate != s.Gate && gate.Apart(s.nodes, w.nodes, f.nodeLabels) {
			continue
		}
		deadlock, why := s.consequence(w, t)
		for _, d := range w.daemons {
			if !contradicts(s.nodes, &d.Spec.Template.Spec) { // otherwise it runs on none of the gate's nodes
				all = s.addMissing(all, d, t, w.gate == s.Gate, deadlock, why)
			}
		}
	}
	return all
}

// consequence returns what happens if the DaemonSets of another gate do not tolerate a taint of
// the suggested one.
func (s *Suggestion) consequence(w *waiter, t v1alpha1.Taint) (deadlock bool, why string) {
	kept := keptOff(s.daemons, w.taints)
	switch {
	case w.gate == s.Gate:
		return true, selfDeadlock
	case slices.Contains(w.taints, t): // the gates share the taint, and open together
		return true, fmt.Sprintf("otherwise gate %s, which has the same taint, never opens on new nodes", w.gate)
	case kept != nil:
		return true, fmt.Sprintf("otherwise this gate waits for gate %s, whose taint %s does not tolerate, and that gate waits for this one", w.gate, kept)
	}
	return false, fmt.Sprintf("otherwise gate %s opens only after this one", w.gate)
}

// addMissing adds the toleration that a DaemonSet lacks, if it does. If several gates wait for
// the DaemonSet, a deadlock is more important. If the API server adds tolerations to the
// gate's own DaemonSets, one gets them with the label that is suggested. Without a label, it must
// be updated once after the gate has been applied.
func (s *Suggestion) addMissing(all []Toleration, d *daemon, t v1alpha1.Taint, own, deadlock bool, why string) []Toleration {
	labelled := s.Use == UseLabel && slices.Contains(s.daemons, d)
	at := slices.IndexFunc(all, func(other Toleration) bool { return other.DaemonSet == d.String() })
	if d.tolerates(t) || s.tolerates && labelled || at >= 0 && (all[at].Deadlock || !deadlock) {
		return all
	}
	missing := Toleration{
		DaemonSet: d.String(), Taint: gate.TaintText(t), Deadlock: deadlock, Why: why,
		Add: corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpExists}, named: own && s.names(d),
	}
	if missing.named && s.tolerates {
		missing.Command = "kubectl gate tolerate --gate " + s.Gate
	}
	if at >= 0 {
		all[at] = missing
		return all
	}
	return append(all, missing)
}

// names reports whether the gate will name or select one of its DaemonSets, or only waits for what
// the DaemonSet provides.
func (s *Suggestion) names(d *daemon) bool {
	isCovered := slices.ContainsFunc(d.covered, func(c Coverage) bool { return c.Gate == s.Gate })
	if s.Use == UseNodeGate || s.Use == UseLabel && !isCovered { // it names it, or selects it by the label
		return true
	}
	for _, of := range v1alpha1.Sources(s.spec.OpenWhen) {
		if ds := of.DaemonSet; ds != nil && s.moved[ds.Namespace+"/"+ds.Name] == d || (ds != nil || of.DaemonSets != nil) && waitsFor(of, d) {
			return true
		}
	}
	return false
}

// nodeLabels iterates over the labels of all nodes.
func (f *finder) nodeLabels(yield func(labels.Set) bool) {
	for _, n := range f.Nodes {
		if !yield(n.Labels) {
			return
		}
	}
}

// keptOff returns a DaemonSet that does not tolerate one of these taints, or nil.
func keptOff(daemons []*daemon, taints []v1alpha1.Taint) *daemon {
	for _, d := range daemons {
		if slices.ContainsFunc(taints, func(t v1alpha1.Taint) bool { return !d.tolerates(t) }) {
			return d
		}
	}
	return nil
}

// Labelled returns the DaemonSets as they would be with the suggested labels.
func (r *Report) Labelled(sets *gate.DaemonSets) *gate.DaemonSets {
	out := &gate.DaemonSets{Observed: sets.Observed, Items: slices.Clone(sets.Items)}
	for i := range r.Suggestions {
		s := &r.Suggestions[i]
		for j := range out.Items {
			if ds := &out.Items[j]; len(s.labels) > 0 && slices.Contains(s.DaemonSets, ds.String()) {
				ds.Labels = labels.Merge(ds.Labels, s.labels)
			}
		}
	}
	return out
}

// SetPreview adds the effect of each gate to the suggestions.
func (r *Report) SetPreview(p *preview.Preview) {
	for i := range r.Suggestions {
		for j := range p.Gates {
			if p.Gates[j].Gate == r.Suggestions[i].Gate {
				r.Suggestions[i].Preview = &p.Gates[j]
			}
		}
	}
}
