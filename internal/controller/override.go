// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// overridden takes note of what a person has the gate be on a node. What counts
// against the budget is what the gate is by itself: when the override ends it is
// closed again without asking for budget, which it was granted before, and a
// close by a person is nobody's to grant.
func (s *standing) overridden(v *gate.Verdict) {
	if o := v.Overridden; o != nil {
		s.underOverride, s.override = true, o.State
		s.own, s.ownReason = o.Own, o.OwnReason
	}
}

// byItself is what the gate is on the node apart from an override, and why.
func (s *standing) byItself() (state string, reason v1alpha1.Reason) {
	if s.underOverride {
		return s.own, s.ownReason
	}
	return s.state, s.reason
}

// overrideFields are what the log says of the override by which a gate opens or
// closes.
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

// tellOverrides tells of overrides that were refused or, once each, that are not
// followed. Who wrote one has no other answer, but for the gate's status. A part of
// a decision follows none but that of the gate that it is about.
func (c *Controller) tellOverrides(set *gateSet, n *gate.Node, d *gate.Decision, part bool) {
	for _, name := range slices.Sorted(maps.Keys(d.Withdrawn)) {
		if why := d.Withdrawn[name]; why != "" {
			c.log.Info("override refused", "gate", name, "node", n.Name, "why", why)
			c.events.warn(n, set.reference(name), v1alpha1.EventOverrideRefused, v1alpha1.EventActionWithdraw, fmt.Sprintf(
				"the override of gate %s is taken off this node, and was not followed: %s", name, why))
		}
	}
	if part {
		return
	}
	news := c.memory.ignoring(n.Name, d.Ignored)
	for _, name := range slices.Sorted(maps.Keys(news)) {
		c.log.Info("override is not followed", "gate", name, "node", n.Name, "why", clip(news[name], ignoredMax))
	}
}

// ignoredMax bounds what is kept of why an override is not followed.
const ignoredMax = 256

// overrides tells what people want of a gate, and what they should know.
func overrides(s *summary) string {
	text := ""
	if s.overridden.count > 0 {
		text += fmt.Sprintf("; overridden by hand on %s", s.overridden)
	}
	if s.ignored.count > 0 {
		text += fmt.Sprintf("; the override is not followed on %s: %s", s.ignored, s.ignoredWhy)
	}
	return text
}
