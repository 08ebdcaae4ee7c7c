// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
)

// A gate contains the properties of a NodeGate that the verdict needs. The gate
// selects all nodes.
type gate struct {
	name      string
	taint     corev1.Taint
	daemonSet types.NamespacedName
}

// A nodeHistory is the history of one node, according to the audit log.
type nodeHistory struct {
	name     string
	writes   []*write // of the node, in the order in which they took effect
	patches  []*write // those of nodegate
	refused  *write   // a registration that was turned down
	setUp    bool     // the node was born with the set-up taint
	setUpEnd *write   // what removed it
	gates    []gateHistory
}

// A gateHistory is the history of a gate on a node, according to the audit log.
type gateHistory struct {
	*gate
	bare   *write // an answer that showed the node without the taint before the gate was opened
	opened *write // nodegate's patch that removed the taint
	ready  *write // the first pod status that said that the daemon is ready
}

// closedAt reports whether the gate was closed when a request was received at t.
// A request that was received before the opening patch can only be based on the
// closed node. A later request may be based on the patch's effect.
func (g *gateHistory) closedAt(t time.Time) bool {
	return g.opened == nil || t.Before(g.opened.received)
}

// moment returns the write that satisfied the gate's last requirement: its daemon
// is ready, and the node is set up. It returns nil until then.
func (h *nodeHistory) moment(g *gateHistory) *write {
	if g.ready == nil || h.setUp && h.setUpEnd == nil {
		return nil
	}
	if h.setUp && h.setUpEnd.done.After(g.ready.done) {
		return h.setUpEnd
	}
	return g.ready
}

// moments returns the distinct moments at which gates of the node could open.
func (h *nodeHistory) moments() []*write {
	var out []*write
	for i := range h.gates {
		if m := h.moment(&h.gates[i]); m != nil && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// readNodes returns the history of each registered node, by name.
func readNodes(e *expectation, log []write) map[string]*nodeHistory {
	nodes := map[string]*nodeHistory{}
	of := func(name string) *nodeHistory {
		if nodes[name] == nil {
			nodes[name] = &nodeHistory{name: name}
			for i := range e.gates {
				nodes[name].gates = append(nodes[name].gates, gateHistory{gate: &e.gates[i]})
			}
		}
		return nodes[name]
	}
	for i := range log {
		w := &log[i]
		switch {
		case w.dryRun:
		case w.refused:
			if w.resource == "nodes" && w.verb == "create" {
				of(w.name).refused = w
			}
		case w.node != nil:
			h := of(w.name)
			h.writes = append(h.writes, w)
		case w.pod != nil && podReady(w.pod) && w.pod.Spec.NodeName != "":
			of(w.pod.Spec.NodeName).daemonReady(w)
		}
	}
	for _, h := range nodes {
		h.replay(e)
	}
	return nodes
}

// daemonReady records that a pod was reported ready.
func (h *nodeHistory) daemonReady(w *write) {
	owner := metav1.GetControllerOf(w.pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return
	}
	for i := range h.gates {
		g := &h.gates[i]
		if g.ready == nil && g.daemonSet == (types.NamespacedName{Namespace: w.pod.Namespace, Name: owner.Name}) {
			g.ready = w
		}
	}
}

// replay processes the responses to the writes of the node in the order of their
// resource versions, which is the order in which all watchers saw them.
func (h *nodeHistory) replay(e *expectation) {
	slices.SortStableFunc(h.writes, func(a, b *write) int {
		return cmp.Or(cmp.Compare(revision(a.node), revision(b.node)), a.done.Compare(b.done))
	})
	var before *corev1.Node
	for _, w := range h.writes {
		if w.user == e.nodegate {
			h.patches = append(h.patches, w)
		}
		for i := range h.gates {
			h.gates[i].see(w, before, e.nodegate)
		}
		if taint := e.setUpTaint; before == nil {
			h.setUp = hasTaint(w.node, taint)
		} else if h.setUpEnd == nil && hasTaint(before, taint) && !hasTaint(w.node, taint) {
			h.setUpEnd = w
		}
		before = w.node
	}
}

// see processes one response with the node, after the previous one.
func (g *gateHistory) see(w *write, before *corev1.Node, nodegate string) {
	if g.opened != nil || hasTaint(w.node, g.taint) {
		return
	}
	if w.user == nodegate && before != nil && hasTaint(before, g.taint) {
		g.opened = w
		return
	}
	if g.bare == nil {
		g.bare = w
	}
}

// opens reports whether the patch removed a gate's taint from the node.
func (h *nodeHistory) opens(patch *write) bool {
	return slices.ContainsFunc(h.gates, func(g gateHistory) bool { return g.opened == patch })
}

func revision(n *corev1.Node) uint64 {
	// The API server uses decimal numbers. Anything else sorts first, so that it
	// is reported as a node without its taint instead of being ignored.
	number, _ := strconv.ParseUint(n.ResourceVersion, 10, 64)
	return number
}

func hasTaint(n *corev1.Node, taint corev1.Taint) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	const comparisonOperators = false // alpha: Lt and Gt in tolerations
	return schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), pod.Spec.Tolerations, &taint, comparisonOperators)
}
