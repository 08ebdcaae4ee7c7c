// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// A write that the API server denies for one gate must not keep other gates of the node
// closed. A denied stamp, or the denied removal of an override, must not keep its own gate
// closed.

// applyReduced carries out a part of a decision that was denied: what concerns the taints
// of a single gate, or else everything except stamps and overrides (see
// applyWithoutStamps), or else only the taints that close gates. It returns nil if
// something was written. It stops after an attempt that failed without being denied,
// because the state of the node is then unknown.
func (c *Controller) applyReduced(ctx context.Context, set *gateset.Set, facts *gate.Facts, d *gate.Decision, denial error, now time.Time) error {
	parts := c.taintSets(set, facts, d)
	if len(parts) < 2 {
		parts = nil // the whole was denied
	}
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		part := *facts
		part.Allowed = parts[id]
		if err := c.applyPart(ctx, set, &part, now); !errors.Is(err, write.ErrDenied) {
			return err
		}
	}
	err := c.applyWithoutStamps(ctx, set, facts, *d, denial, false)
	if errors.Is(err, write.ErrRejected) {
		err = c.applyTaintsOnly(ctx, set, &facts.Node, *d, err)
	}
	return err
}

// applyPart carries out the decision with a limited set of allowed taints. It returns
// ErrDenied if that changes nothing.
func (c *Controller) applyPart(ctx context.Context, set *gateset.Set, part *gate.Facts, now time.Time) error {
	d := gate.Decide(set.Gates, part, now)
	if !d.Changes {
		return write.ErrDenied
	}
	err := c.apply(ctx, set, &part.Node, &d)
	switch {
	case err == nil:
		c.account(set, part, &d, true)
	case errors.Is(err, write.ErrDenied):
		return c.applyWithoutStamps(ctx, set, part, d, err, true)
	}
	return err
}

// taintSets returns, for each gate of a decision, the taints that must be allowed in
// order to decide about it: its own, and the one in its record.
func (c *Controller) taintSets(set *gateset.Set, facts *gate.Facts, d *gate.Decision) map[string]gate.AllowedTaints {
	parts := make(map[string]gate.AllowedTaints)
	for name := range d.Records {
		taints := make(gate.AllowedTaints)
		if r, _ := gate.ParseRecord(facts.Node.Records[name]); r.RecordedTaint().Key != "" {
			taints[gate.IDOf(r.RecordedTaint())] = true
		}
		if g, ok := set.Gate(name); ok {
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

// applyWithoutStamps carries out a decision that was denied, or a part of one, without
// stamps and without removing expired overrides, which guards of older versions deny. If
// the decision contains neither, it returns the denial.
func (c *Controller) applyWithoutStamps(ctx context.Context, set *gateset.Set, facts *gate.Facts, d gate.Decision, denial error, part bool) error {
	if len(d.Stamps)+len(d.Withdrawn) == 0 || len(d.Records) == 0 {
		return denial
	}
	keys := slices.Sorted(maps.Keys(d.Stamps))
	d.Stamps, d.Withdrawn = nil, nil
	if err := c.apply(ctx, set, &facts.Node, &d); err != nil {
		return err
	}
	if text := gate.Clip(denial.Error(), deniedMax); len(keys) > 0 {
		c.log.Info("gate opened without its stamp", "node", facts.Node.Name, "annotations", keys, "denial", text)
	} else {
		c.log.Info("node written without removing expired overrides", "node", facts.Node.Name, "denial", text)
	}
	c.account(set, facts, &d, part)
	return nil
}

// applyTaintsOnly adds the taints of a decision that was denied, without its records. On a
// node whose annotations are full there is no space for a record, so a user who can fill
// them could otherwise prevent the node from being closed. The API server rejects the
// content of such a write. Writes that it denies for other reasons are not retried this
// way: an API server that has just started denies everything until it has read the roles,
// and the record can be written a moment later. The next decision is denied again because
// of its records, which the gate's status reports. Gates are not opened this way. If
// there is no taint to add, applyTaintsOnly returns the denial.
func (c *Controller) applyTaintsOnly(ctx context.Context, set *gateset.Set, n *gate.Node, d gate.Decision, denial error) error {
	taints := slices.Clone(n.Taints)
	for _, t := range d.Taints {
		if !slices.ContainsFunc(n.Taints, func(had corev1.Taint) bool { return had.MatchTaint(&t) }) {
			taints = append(taints, t)
		}
	}
	if len(taints) == len(n.Taints) {
		return denial
	}
	d.Taints, d.Records, d.Stamps, d.Withdrawn = taints, nil, nil, nil
	if err := c.apply(ctx, set, n, &d); err != nil {
		return err
	}
	c.log.Info("node tainted without a record", "node", n.Name, "denial", gate.Clip(denial.Error(), deniedMax))
	return nil
}

// deniedMax limits the length of the API server's error that is kept.
const deniedMax = 512

// unchangedBy returns a function that reports which gates a decision covers, but does not change.
func unchangedBy(d *gate.Decision, set *gateset.Set) func(gate string) bool {
	return func(name string) bool {
		_, recorded := d.Records[name]
		_, withdrawn := d.Withdrawn[name]
		return !recorded && !withdrawn && set.Covers(name)
	}
}

// failureReported is how long writes of a node must have failed before the gate's status reports it.
// Most failures end sooner, and then they often concern the status, too.
const failureReported = time.Minute

// setCause sets the error of a write in the state of a gate: as a denial, or as a failure. It sets
// neither if the decision does not change anything for the gate, and the gate is known.
func (c *Controller) setCause(s *fleet.GateState, failure error, node string, d *gate.Decision) {
	_, concerned := d.Records[s.Gate]
	if !d.Changes {
		_, concerned = d.Conditions[s.Gate]
	} else if _, withdrawn := d.Withdrawn[s.Gate]; withdrawn || len(d.Records)+len(d.Withdrawn) == 0 {
		concerned = true
	}
	text := gate.Clip(failure.Error(), deniedMax)
	switch {
	case !concerned, errors.Is(failure, write.ErrConflict):
	case errors.Is(failure, write.ErrDenied):
		s.Denied = text
	default:
		since := c.nodes.failingSince(node)
		s.Failed, s.FailedLong = text, !since.IsZero() && c.clock.Since(since) >= failureReported
	}
}
