// SPDX-License-Identifier: Apache-2.0

// Package outages returns for how long a node was unreachable, at least and at most, as far as
// nodegate can have observed it.
package outages

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// Observer is nodegate, which observes a history late, and only while it runs.
type Observer struct {
	*revisions.History
	// Controller is the name of nodegate's user.
	Controller string
	// Lag is how late nodegate may observe a revision.
	Lag time.Duration
}

// Certain returns for how long, since a time and before a revision, the node was certainly
// unreachable while nodegate observed that. Only outages count for which counts returns true, given
// their beginning. nodegate takes the times from the Ready condition.
func (o Observer) Certain(node *corev1.Node, since time.Time, before int64, counts func(time.Time) bool) (total time.Duration) {
	var from time.Time
	add := func(to time.Time) {
		if from = revisions.Later(from, since); o.isAwake(from.Add(o.Lag), to) && counts(from) {
			total += to.Sub(from)
		}
		from = time.Time{}
	}
	for _, v := range o.versions(node, before) {
		switch changed := facts.ReadyChanged(v.node); {
		case facts.IsUnreachable(v.node) && from.IsZero():
			from = revisions.Later(o.Latest(v.revision), changed)
		case !facts.IsUnreachable(v.node) && !from.IsZero():
			add(revisions.Earlier(o.Earliest(v.revision), changed))
		}
	}
	if !from.IsZero() {
		add(o.Earliest(before))
	}
	return total
}

// rounding is added to each outage: nodegate rounds up to a second, and clocks differ by less.
const rounding = 2 * time.Second

// Possible returns for how long, since a time and before a revision, the node can have been
// unreachable. If nodegate may not have observed that the node had returned for a while, the
// outages before and after are one.
func (o Observer) Possible(node *corev1.Node, since time.Time, before int64) (total time.Duration) {
	var from, to time.Time // the last outage; to is zero until it has ended
	end := o.Latest(before)
	add := func() {
		if to.IsZero() || to.After(end) {
			to = end
		}
		if !from.IsZero() && to.After(from) {
			total += to.Sub(from) + rounding
		}
	}
	for _, v := range o.versions(node, before) {
		changed := facts.ReadyChanged(v.node)
		switch silent := facts.IsUnreachable(v.node); {
		case silent && (from.IsZero() || !to.IsZero()):
			begins := revisions.Earlier(o.Earliest(v.revision), changed)
			if from.IsZero() || o.isAwake(to, begins) {
				add()
				from = revisions.Later(since, begins)
			}
			to = time.Time{}
		case !silent && !from.IsZero() && to.IsZero():
			to = revisions.Later(o.Latest(v.revision), changed).Add(o.Lag)
		}
	}
	if !from.IsZero() {
		add()
	}
	return total
}

// version is a version of a Node, without deletions.
type version struct {
	revision int64
	node     *corev1.Node
}

// versions returns the versions of this Node, not of others with its name, before a revision.
func (o Observer) versions(node *corev1.Node, before int64) []version {
	var all []version
	for _, v := range o.VersionsOf(revisions.ID{Kind: revisions.KindNode, Name: node.Name}) {
		if n, ok := v.Object.(*corev1.Node); ok && v.Revision < before && n.UID == node.UID {
			all = append(all, version{v.Revision, n})
		}
	}
	return all
}

// isAwake reports whether nodegate wrote a Node between two times.
func (o Observer) isAwake(from, to time.Time) bool {
	for _, v := range o.Nodes() {
		for _, w := range o.Writes(v.Revision) {
			if w.User == o.Controller && !w.Received.Before(from) && !w.Received.After(to) {
				return true
			}
		}
	}
	return false
}
