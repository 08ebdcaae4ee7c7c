// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

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

// evictions counts the pods that a gate's NoExecute taint would remove from the nodes
// that would be closed, now or later. The taint is the gate's taint for nodes that count
// as new, and otherwise its recloseTaint, if it has one.
func (t *predictor) evictions(g *gate.Gate, groups []Group) *Evictions {
	var out Evictions
	concerned := false
	for _, group := range groups {
		if group.What != Closes && group.What != Waits && group.What != Lapses {
			continue
		}
		taint := g.Taint
		if again := g.Taints(); len(again) > 1 && group.Why != because(closes[v1alpha1.ReasonBirth], v1alpha1.ReasonBirth) {
			taint = again[1]
		}
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		concerned = true
		for _, node := range group.Nodes {
			t.evictionsOn(node, taint, &out)
		}
	}
	if !concerned {
		return nil
	}
	out.Unknown = t.Pods == nil
	return &out
}

func (t *predictor) evictionsOn(node string, taint v1alpha1.Taint, out *Evictions) {
	list := t.podsOn(node)
	if list == nil {
		return
	}
	before := out.Pods
	for i := range list.Pods {
		p := &list.Pods[i]
		if p.Mirror || p.Finished || p.Terminating || p.Tolerates(taint) {
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
	if len(t.Nodes) == 0 {
		return nil
	}
	sets := t.Nodes[0].DaemonSets
	var out []string
	for _, s := range g.Signals {
		r := signal.Diagnose(s.Signal, g.Taints(), sets)
		if r.State != gate.Holds || r.Reason != "" {
			out = append(out, fmt.Sprintf("signal %s: %s (%s)", s.Name, r.Message(), r.Reason))
		}
	}
	for _, d := range signal.Deadlocks(t.after.Gates, sets)[g.Name] {
		out = append(out, fmt.Sprintf("deadlock: the gate waits for DaemonSet %s, which does not tolerate the taint of gate %s, and gate %[2]s waits for DaemonSet %[3]s, which does not tolerate this gate's taint: on a new node, neither gate opens",
			d.Daemon, d.With, d.Other))
	}
	return out
}
