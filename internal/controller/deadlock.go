// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// deadlocked says with which other gate a gate is in a deadlock, and on which
// nodes: those on which both are closed and neither's daemon is. Gates that could
// be in one but share no node are not. It is empty if there is none.
func (c *Controller) deadlocked(o *observed, g *gate.Gate) string {
	var first *signal.Deadlock
	var nodes, others few
	for i, d := range o.deadlocks[g.Name] {
		on := c.tally.lackingPods(g.Name, d.With)
		if others.addIf(on.count > 0, d.With); on.count > 0 && first == nil {
			first, nodes = &o.deadlocks[g.Name][i], on
		}
	}
	if first == nil {
		return ""
	}
	text := fmt.Sprintf("a deadlock with the gate %s on %s: this gate waits for DaemonSet %s, which does not tolerate the taint of %s, "+
		"and that waits for DaemonSet %s, which does not tolerate this gate's: have one of them tolerate both taints",
		first.With, nodes, first.Daemon, first.With, first.Other)
	if others.count > 1 {
		text += fmt.Sprintf("; likewise with other gates (%d in all)", others.count)
	}
	return text
}

// lackingPods are the nodes on which both gates are closed and miss a pod.
func (t *tally) lackingPods(a, b string) (nodes few) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, other := t.gates[a], t.gates[b]
	if one == nil || other == nil || !one.lacksPods() || !other.lacksPods() {
		return nodes
	}
	for name, n := range t.nodes {
		nodes.addIf(n.lacksPod(one) && n.lacksPod(other), name)
	}
	return nodes
}

// lacksPods tells whether there is any node on which the gate misses a pod.
func (g *gateTally) lacksPods() bool {
	for _, s := range g.shapes {
		if s.standing.lacksPod() {
			return true
		}
	}
	return false
}

// lacksPod tells whether a gate misses a pod on the node.
func (n *nodeTally) lacksPod(g *gateTally) bool {
	s := n.under(g)
	return s != nil && s.shape.standing.lacksPod()
}

// lacksPod tells whether the gate is closed for want of a pod.
func (s *standing) lacksPod() bool { return s.state == v1alpha1.StateClosed && s.reading.LacksPod() }
