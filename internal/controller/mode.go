// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// logDryRun logs what a gate in dry run would do. Counters and Events report only what was
// done.
func (c *Controller) logDryRun(n *gate.Node, v *gate.Verdict) {
	switch {
	case v.Opened():
		c.log.Info("gate would open", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
	case v.Closed():
		c.log.Info("gate would close", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
	}
}

// reportMode sets the metric of a gate's mode, and logs a change of the mode. A new leader
// also logs a mode other than Enforce. The mode of a gate that cannot be read is not known.
func (r *reporter) reportMode(ng *v1alpha1.NodeGate, last *reported) {
	if ng.ReadError != "" {
		return
	}
	mode := ng.Spec.Mode.OrDefault()
	switch was := last.mode; {
	case mode == was.OrDefault():
	case was == "": // new to this leader
		r.log.Info("gate mode", "gate", ng.Name, "mode", mode)
	default:
		r.log.Info("gate mode changed", "gate", ng.Name, "mode", mode, "before", was)
	}
	last.mode = mode
	r.metrics.GateMode(ng.Name, mode)
}

// pausedMessage describes the state of a paused gate.
func pausedMessage(s *fleet.Summary) string {
	return fmt.Sprintf("nodes keep their state, and new nodes are not closed; %d nodes stay closed regardless of their signals", s.Counts.Closed)
}
