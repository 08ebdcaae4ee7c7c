// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Feed provides everything that the controller observes. It is implemented by feed.Feed.
type Feed interface {
	NodeFeed
	GateFeed
	NeedsFeed
}

// NodeFeed provides facts about nodes.
type NodeFeed interface {
	// Facts returns all facts about a node; false if the node is not known.
	Facts(node string) (gate.Facts, bool)
	// FactsOf returns only the facts that the needs require.
	FactsOf(node string, n *gate.Needs) (gate.Facts, bool)
	// NodesSynced reports whether the cache of nodes is synced. Otherwise, no node is
	// known.
	NodesSynced() bool
	// Gone reports whether the cache of nodes is synced and does not contain the node.
	Gone(node string) bool
	// NodeNames returns the names of all nodes, those first that should be reconciled first.
	NodeNames() []string
	// Rewinds returns how often the cache of nodes was replaced by an earlier state, so that what
	// was written since may be missing. It counts before it returns such a state.
	Rewinds() int64
	// CatchUpNodes waits until the cache includes all changes of Nodes that were made before the
	// call. It returns an error if that takes too long.
	CatchUpNodes(context.Context) error
	// SameBoot returns the names of nodes that have the boot ID of another node.
	SameBoot() []string
	// Observe stores a node that the API server has just returned.
	Observe(*corev1.Node)
	// Refresh reads a node from the API server, and stores the result or that the node
	// does not exist.
	Refresh(ctx context.Context, node string) error
}

// GateFeed provides the gates.
type GateFeed interface {
	// GatesFrom returns the source of the gates, as records name it.
	GatesFrom() string
	// Gates returns the known gates, and whether the list is complete.
	Gates() ([]*v1alpha1.NodeGate, bool)
	// DeletedGates returns the names of gates that are known to have been deleted, even if
	// the list is not complete.
	DeletedGates() map[string]bool
	// CatchUp waits until has returns true for every gate in its present state. It returns an error
	// if that takes too long.
	CatchUp(ctx context.Context, has func(*v1alpha1.NodeGate) bool) error
	// GatesError returns the error that prevents reading the gates, or nil.
	GatesError() error
}

// NeedsFeed observes what the gates need.
type NeedsFeed interface {
	// SetNeeds sets what must be observed.
	SetNeeds(gate.Needs)
	// Unsynced returns the names of feeds that are not synced.
	Unsynced() []string
	// LastReceived returns the latest time at which a feed that is not synced received
	// anything, or zero.
	LastReceived() time.Time
	// StatusOf returns the status of every feed that the needs require.
	StatusOf(gate.Needs) []reflector.Status
	// DaemonSets returns the observed DaemonSets.
	DaemonSets() *gate.DaemonSets
}
