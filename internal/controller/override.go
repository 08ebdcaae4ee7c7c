// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// overrideFields returns log fields about the override that opens or closes a gate.
func overrideFields(v *gate.Verdict) []any {
	o := v.Overridden
	if o == nil || o.State == "" {
		return nil
	}
	fields := []any{"until", o.Until, "because", o.Because}
	if o.HeldBy != "" {
		fields = append(fields, "taintHeldBy", o.HeldBy)
	}
	return fields
}

// reportOverrides reports overrides that were refused, and logs, once each, those that are
// ignored. Apart from the gate's status, their authors get no other response. A
// partial decision must not be used to find overrides that are ignored, because it
// follows only those of its own gate.
func (c *Controller) reportOverrides(set *gateset.Set, n *gate.Node, d *gate.Decision, part bool) {
	for _, name := range slices.Sorted(maps.Keys(d.Withdrawn)) {
		if why := d.Withdrawn[name]; why != "" {
			c.log.Info("override refused", "gate", name, "node", n.Name, "why", why)
			c.events.Warning(n, telemetry.GateReference(set.Object(name)), v1alpha1.EventOverrideRefused, v1alpha1.EventActionWithdraw, fmt.Sprintf(
				"the override of gate %s was removed from this node without effect: %s", name, why))
		}
	}
	if part {
		return
	}
	added := c.nodes.newlyIgnored(n.Name, d.Ignored)
	for _, name := range slices.Sorted(maps.Keys(added)) {
		c.log.Info("override is ignored", "gate", name, "node", n.Name, "why", gate.Clip(added[name], ignoredMax))
	}
}

// ignoredMax limits the length of the reason why an override is ignored.
const ignoredMax = 256
