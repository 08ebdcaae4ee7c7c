// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// deadlocked returns a description of the deadlock that a gate is in, or "". Two gates
// are in a deadlock on nodes on which both are closed and lack the pod of their daemon.
// Gates that could be in a deadlock but share no node are not.
func (r *reporter) deadlocked(o *observed, g *gate.Gate) string {
	var first *signal.Deadlock
	var nodes, others fleet.NameList
	for i, d := range o.deadlocks[g.Name] {
		on := r.ledger.LackingPods(g.Name, d.With)
		if others.AddIf(on.Count > 0, d.With); on.Count > 0 && first == nil {
			first, nodes = &o.deadlocks[g.Name][i], on
		}
	}
	if first == nil {
		return ""
	}
	text := fmt.Sprintf("deadlock with gate %s on %s: this gate waits for DaemonSet %s, which does not tolerate the taint of gate %s, "+
		"and that gate waits for DaemonSet %s, which does not tolerate this gate's taint: make one of the DaemonSets tolerate both taints",
		first.With, nodes, first.Daemon, first.With, first.Other)
	if others.Count > 1 {
		text += fmt.Sprintf("; there are deadlocks with %d gates in total", others.Count)
	}
	return text
}
