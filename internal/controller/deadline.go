// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// blockersMax limits the length of the description of what a gate waits for.
const blockersMax = 600

// reportDeadline logs, and reports in an Event, that a gate's deadline has passed on a
// node. This happens once, because the record that was just written contains it.
func (c *Controller) reportDeadline(set *gateset.Set, n *gate.Node, g *gate.Gate, v *gate.Verdict) {
	effect, action := "stays closed", v1alpha1.EventActionKeepClosed
	if v.Opened() {
		effect, action = "opens", v1alpha1.EventActionOpen
	}
	c.log.Info("deadline passed", "gate", v.Gate, "node", n.Name, "action", action)
	c.events.Warning(n, telemetry.GateReference(set.Object(v.Gate)), v1alpha1.EventDeadlinePassed, action, fmt.Sprintf(
		"gate %s %s on this node because its deadline has passed; it waits for: %s", v.Gate, effect, gate.Clip(g.WaitsFor(v), blockersMax)))
}
