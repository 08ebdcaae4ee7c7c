// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// examplesMax is the maximum number of pods in Evictions.Examples.
const examplesMax = 5

// evicts reports whether a gate can evict running pods.
func evicts(ng *v1alpha1.NodeGate) bool {
	return slices.ContainsFunc(ng.Spec.Taints(), func(t v1alpha1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

// addedTaint returns the taint that the gate adds to the nodes of a group: the gate's taint
// for nodes that count as new, and otherwise its recloseTaint, if it has one.
func addedTaint(g *gate.Gate, group *Group) v1alpha1.Taint {
	taints := g.Taints()
	for _, taint := range taints {
		if group.Why == retaints(gate.TaintText(taint)) {
			return taint
		}
	}
	if len(taints) > 1 && group.Why != because(closes[v1alpha1.ReasonBirth], v1alpha1.ReasonBirth) {
		return taints[1]
	}
	return g.Taint
}

// evictions counts the pods that a gate's NoExecute taint would remove from the nodes to
// which it would be added, now or later.
func (t *predictor) evictions(g *gate.Gate, groups []Group) *Evictions {
	out, _ := t.evicted(g, groups,
		func(_ *gate.Facts, taint v1alpha1.Taint) bool { return taint.Effect == corev1.TaintEffectNoExecute },
		func(p *gate.BoundPod) bool { return !p.Mirror })
	return out
}

// descheduled counts the pods that deschedulers would evict from the nodes to which a taint
// would be added, now or later.
func (t *predictor) descheduled(g *gate.Gate, groups []Group) (all []Descheduled) {
	for i := range t.Deschedulers {
		policy := &t.Deschedulers[i]
		for j := range policy.Profiles {
			profile := &policy.Profiles[j]
			out, taints := t.evicted(g, groups,
				func(f *gate.Facts, taint v1alpha1.Taint) bool {
					return profile.Evicts(taint) && policy.Nodes.Matches(f.Node.Labels)
				},
				func(p *gate.BoundPod) bool { return p.Owned && !p.Daemon && !p.Mirror })
			if out != nil {
				all = append(all, Descheduled{Evictions: *out, By: policy.Describe(profile), Exemption: profile.Exemption(taints...)})
			}
		}
	}
	return all
}

// evicted counts the pods that do not tolerate the taint that a gate would add to their node,
// now or later: on those nodes where the taint evicts pods, the pods that can be evicted. It
// returns nil if there is no such node, and otherwise the taints that evict pods.
func (t *predictor) evicted(g *gate.Gate, groups []Group, evicts func(*gate.Facts, v1alpha1.Taint) bool, evictable func(*gate.BoundPod) bool) (*Evictions, []v1alpha1.Taint) {
	out := Evictions{Unknown: t.Pods == nil}
	concerned := make(map[v1alpha1.Taint]bool)
	for i := range groups {
		taint := addedTaint(g, &groups[i])
		for _, name := range groups[i].Nodes {
			if evicts(t.facts(name), taint) {
				concerned[taint] = true
				out.count(t.podsOn(name), taint, evictable)
			}
		}
	}
	if len(concerned) == 0 {
		return nil, nil
	}
	return &out, slices.DeleteFunc(g.Taints(), func(taint v1alpha1.Taint) bool { return !concerned[taint] })
}

// facts returns the facts of a node. World.Nodes is sorted by name.
func (t *predictor) facts(name string) *gate.Facts {
	i, _ := slices.BinarySearchFunc(t.Nodes, name, func(f gate.Facts, name string) int { return strings.Compare(f.Node.Name, name) })
	return &t.Nodes[i]
}

// count adds the pods of a node that can be evicted and do not tolerate the taint. Pods are
// nil if they are unknown.
func (out *Evictions) count(list *gate.PodList, taint v1alpha1.Taint, evictable func(*gate.BoundPod) bool) {
	if list == nil {
		return
	}
	before := out.Pods
	for i := range list.Pods {
		p := &list.Pods[i]
		if p.Finished || p.Terminating || !evictable(p) || p.Tolerates(taint) {
			continue
		}
		out.Pods++
		if p.Daemon {
			out.Daemons++
		}
		if len(out.Examples) < examplesMax {
			out.Examples = append(out.Examples, p.Namespace+"/"+p.Name)
		}
	}
	if out.Pods > before {
		out.Nodes++
	}
}

// problems returns the reasons why the gate would not work on any node.
func (t *predictor) problems(g *gate.Gate) []string {
	if len(t.nodes) == 0 {
		return nil
	}
	sets := t.nodes[0].DaemonSets
	var out []string
	for _, s := range g.Signals {
		r := signal.Diagnose(s.Signal, g.Taints(), sets)
		if r.State != gate.Holds || r.Reason != "" {
			out = append(out, fmt.Sprintf("signal %s: %s (%s)", s.Name, r.Message(), r.Reason))
		}
	}
	for _, d := range t.deadlocks[g.Name] {
		out = append(out, fmt.Sprintf("deadlock: the gate waits for DaemonSet %s, which does not tolerate the taint of gate %s, and gate %[2]s waits for DaemonSet %[3]s, which does not tolerate this gate's taint: on a new node, neither gate opens",
			d.Daemon, d.With, d.Other))
	}
	return out
}

// findDeadlocks determines once which gates wait for each other's DaemonSets: each pair of gates is
// compared.
func (t *predictor) findDeadlocks() {
	if len(t.nodes) > 0 {
		t.deadlocks = signal.Deadlocks(t.after.Gates, t.nodes[0].DaemonSets, t.labels())
	}
}

// labels returns an iterator over the labels of all nodes.
func (t *predictor) labels() iter.Seq[labels.Set] {
	return func(yield func(labels.Set) bool) {
		for i := range t.nodes {
			if !yield(t.nodes[i].Node.Labels) {
				return
			}
		}
	}
}
