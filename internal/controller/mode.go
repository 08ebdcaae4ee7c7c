// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// tellDryRun tells what would have been done. It is told by the log, and by the
// gate's status, and not by what counts or reports what has been done.
func (c *Controller) tellDryRun(n *gate.Node, v *gate.Verdict) {
	switch {
	case v.Opened():
		c.log.Info("gate would open", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
	case v.Closed():
		c.log.Info("gate would close", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
	}
}

// tellMode tells of the mode that a gate is in: also when a leader begins with one
// that does not act.
func (r *reporter) tellMode(ng *v1alpha1.NodeGate, last *reported) {
	mode, was := modeOf(&ng.Spec), cmp.Or(last.mode, v1alpha1.ModeEnforce)
	if mode != was {
		r.log.Info("gate is in another mode", "gate", ng.Name, "mode", mode, "before", was)
	}
	last.mode = mode
	r.metrics.gateMode(ng.Name, mode)
}

func modeOf(spec *v1alpha1.NodeGateSpec) v1alpha1.Mode {
	return cmp.Or(spec.Mode, v1alpha1.ModeEnforce)
}

// gateMode tells of the mode that a gate is in.
func (m *Metrics) gateMode(name string, mode v1alpha1.Mode) {
	m.about(name, func() {
		for _, other := range []v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused} {
			if other != mode {
				m.modes.DeleteLabelValues(name, string(other))
			}
		}
		m.modes.WithLabelValues(name, string(mode)).Set(1)
	})
}

// pausedMessage says what a paused gate does not do, and what it holds.
func pausedMessage(s *summary) string {
	return fmt.Sprintf("nodes stay as they are and new ones are not closed: kept closed are %d, whatever their signals say", s.counts.Closed)
}
