// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// omitConditions removes from a decision what nodegate is known not to be permitted to
// write, because attempts would be denied again and again. Conditions that cannot be
// removed stay until the permission is granted, which enqueues all nodes. Until then, it is reviewed
// even if no gate requires it, because the last gate that did may have been deleted.
func (c *Controller) omitConditions(d *gate.Decision) {
	if len(d.Conditions) == 0 || !c.permissions.missing(patchNodeStatus) {
		return
	}
	c.permissions.require(patchNodeStatus)
	for i := range d.Verdicts {
		d.Verdicts[i].Published = d.Verdicts[i].WasPublished
	}
	d.Conditions = nil
}

// noteConditions logs the conditions that were written. After a denial, the permission is
// reviewed even if no gate requires it.
func (c *Controller) noteConditions(n *gate.Node, d *gate.Decision, err error) {
	switch {
	case d.Changes || len(d.Conditions) == 0:
	case err == nil:
		for name, condition := range d.Conditions {
			c.log.Info("node condition written", "node", n.Name, "gate", name, "condition", v1alpha1.DeadlineConditionPrefix+name, "published", condition != nil)
		}
	case errors.Is(err, write.ErrDenied) && !errors.Is(err, write.ErrRejected):
		c.permissions.require(patchNodeStatus)
	}
}
