// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Gates that open together make the decision about a node depend on other nodes. Every
// decision stores whether the node is fit. If that changes whether the node's group is
// complete, all nodes of the group are enqueued at once, in the lane of changed nodes, so
// the node that completes a group opens the others without waiting for a resync. Changes
// that only affect what is reported about waiting nodes are collected for a second.

// groupKey returns the key of a node's group for a gate. The name is empty if the gate does
// not select the node or the node has no group.
func groupKey(set *gateset.Set, g *gate.Gate, n *gate.Node) fleet.GroupKey {
	key := fleet.GroupKey{Gate: g.Name, Since: set.Since[g.Name]}
	if g.Selects(n.Labels) {
		key.Name = g.Together.Name(n.Labels)
	}
	return key
}

// groupFacts returns what is known about the other nodes of a node's groups, by gate. Nil
// if no gate opens together.
func (c *Controller) groupFacts(set *gateset.Set, n *gate.Node) map[string]gate.Group {
	var facts map[string]gate.Group
	for i := range set.Gates {
		g := &set.Gates[i]
		if g.Together == nil {
			continue
		}
		group := c.groups.Of(groupKey(set, g, n), n.Name)
		group.Known = c.ledger.IsEvaluated(g.Name)
		put(&facts, g.Name, group)
	}
	return facts
}

// recordFitness stores whether a node is fit in its groups, and enqueues the nodes whose
// groups have become complete or incomplete by that. It must be called after each decision,
// whether it can be written or not.
func (c *Controller) recordFitness(set *gateset.Set, n *gate.Node, d *gate.Decision) {
	for i := range set.Gates {
		g := &set.Gates[i]
		if g.Together == nil {
			continue
		}
		key, m := groupKey(set, g, n), gate.GroupMember{}
		if v := d.Verdict(g.Name); v != nil && key.Name != "" {
			m = g.Together.Member(n.Labels, v)
		}
		c.enqueueGroup(g.Name, c.groups.Put(key, g.Together, n.Name, m))
	}
}

// forgetFitness drops a deleted node from its groups.
func (c *Controller) forgetFitness(node string) {
	for gateName, nodes := range c.groups.Forget(node, c.set.Load().Together) {
		c.enqueueGroup(gateName, nodes)
	}
}

func (c *Controller) enqueueGroup(gateName string, nodes []string) {
	for _, name := range nodes {
		c.NodeChanged(name, gate.ChangeOf(gate.Aspect{Kind: gate.AspectGroup, Name: gateName}))
	}
}

// groupCounts returns the number of a gate's groups, or nil if it does not open together.
func (r *reporter) groupCounts(ng *v1alpha1.NodeGate) *v1alpha1.GroupCounts {
	if ng.Spec.OpenTogether == nil {
		return nil
	}
	complete, incomplete := r.groups.Count(ng.Name)
	return &v1alpha1.GroupCounts{Complete: int32(complete), Incomplete: int32(incomplete)}
}
