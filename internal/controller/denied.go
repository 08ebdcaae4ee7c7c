// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// What the API server does not let us write for one gate must keep no other gate
// of the node closed, nor must a stamp that may not be written, or an override
// that may not be taken off, keep its own.

// applyLess carries out something of a decision that was denied: what concerns
// the taints of one gate alone, or else the whole without what goes along (see
// applyBare). Nil means that something was written. An attempt that failed, but was
// not denied, is the last: nobody knows what has become of the node.
func (c *Controller) applyLess(ctx context.Context, set *gateSet, facts *gate.Facts, d *gate.Decision, denial error, now time.Time) error {
	parts := c.taintsApart(set, facts, d)
	if len(parts) < 2 {
		return c.applyBare(ctx, set, facts, *d, denial, false)
	}
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		part := *facts
		part.Allowed = parts[id]
		if err := c.applyPart(ctx, set, &part, now); !errors.Is(err, cluster.ErrDenied) {
			return err
		}
	}
	return c.applyBare(ctx, set, facts, *d, denial, false)
}

// applyPart carries out what is decided when no other taints are allowed. It is
// denied where that is nothing.
func (c *Controller) applyPart(ctx context.Context, set *gateSet, part *gate.Facts, now time.Time) error {
	d := gate.Decide(set.gates, part, now)
	if !d.Changes {
		return cluster.ErrDenied
	}
	err := c.apply(ctx, &part.Node, &d)
	switch {
	case err == nil:
		c.account(set, part, &d, true)
	case errors.Is(err, cluster.ErrDenied):
		return c.applyBare(ctx, set, part, d, err, true)
	}
	return err
}

// taintsApart returns, for each of a decision's gates, the taints that must be
// allowed to decide about it: its own, and the one of its record.
func (c *Controller) taintsApart(set *gateSet, facts *gate.Facts, d *gate.Decision) map[string]gate.AllowedTaints {
	parts := make(map[string]gate.AllowedTaints)
	for name := range d.Records {
		taints := make(gate.AllowedTaints)
		if r, _ := gate.ParseRecord(facts.Node.Records[name]); r.Put().Key != "" {
			taints[gate.IDOf(r.Put())] = true
		}
		if g, ok := set.gate(name); ok {
			for _, t := range g.Taints() {
				taints[gate.IDOf(t)] = true
			}
		}
		if c.allowed != nil {
			maps.DeleteFunc(taints, func(id gate.TaintID, _ bool) bool { return !c.allowed[id] })
		}
		if len(taints) > 0 {
			parts[taints.String()] = taints
		}
	}
	return parts
}

// applyBare carries out a decision that was denied, or a part of one, without its
// stamps, and without taking overrides off that have ended, which guards of an
// older version deny. Where there is none of these the denial stands.
func (c *Controller) applyBare(ctx context.Context, set *gateSet, facts *gate.Facts, d gate.Decision, denial error, part bool) error {
	if len(d.Stamps)+len(d.Withdrawn) == 0 || len(d.Records) == 0 {
		return denial
	}
	keys := slices.Sorted(maps.Keys(d.Stamps))
	d.Stamps, d.Withdrawn = nil, nil
	if err := c.apply(ctx, &facts.Node, &d); err != nil {
		return err
	}
	what := "gate opened without its stamp"
	if len(keys) == 0 {
		what = "node written, but for overrides that have ended"
	}
	c.log.Info(what, "node", facts.Node.Name, "annotations", keys, "denial", clip(denial.Error(), deniedMax))
	c.account(set, facts, &d, part)
	return nil
}

// deniedMax bounds what is kept of the API server's words.
const deniedMax = 512

// denialOf is what the API server said when it denied a decision, if that was to
// change something for this gate, or nobody knows for which; else it is empty.
func denialOf(gateName string, d *gate.Decision, failure error) string {
	_, concerned := d.Records[gateName]
	if _, withdrawn := d.Withdrawn[gateName]; withdrawn || len(d.Records)+len(d.Withdrawn) == 0 {
		concerned = true
	}
	if !concerned || !errors.Is(failure, cluster.ErrDenied) {
		return ""
	}
	return clip(failure.Error(), deniedMax)
}
