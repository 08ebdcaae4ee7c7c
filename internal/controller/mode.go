// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// logDryRun tells what would have been done. It is told by the log, and by the
// gate's status, and not by what counts or reports what has been done.
func (c *Controller) logDryRun(n *gate.Node, v *gate.Verdict) {
	switch {
	case v.Opened():
		c.log.Info("gate would open", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
	case v.Closed():
		c.log.Info("gate would close", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
	}
}

// reportMode tells of the mode that a gate is in: also when a leader begins with one
// that does not act.
func (r *reporter) reportMode(ng *v1alpha1.NodeGate, last *reported) {
	mode, was := modeOf(&ng.Spec), cmp.Or(last.mode, v1alpha1.ModeEnforce)
	if mode != was {
		r.log.Info("gate is in another mode", "gate", ng.Name, "mode", mode, "before", was)
	}
	last.mode = mode
	r.metrics.GateMode(ng.Name, mode)
}

func modeOf(spec *v1alpha1.NodeGateSpec) v1alpha1.Mode {
	return cmp.Or(spec.Mode, v1alpha1.ModeEnforce)
}

// pausedMessage describes the state of a paused gate.
func pausedMessage(s *fleet.Summary) string {
	return fmt.Sprintf("nodes stay as they are and new ones are not closed: kept closed are %d, whatever their signals say", s.Counts.Closed)
}
