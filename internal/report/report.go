// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/timeline"
)

// Report is what 'kubectl gate report' has found out about a fleet, and what it
// prints with -o json and -o yaml. Fields are added, and neither renamed nor given
// another meaning. Durations are in seconds.
type Report struct {
	// Cluster names the cluster that it is about.
	Cluster string `json:"cluster,omitempty"`
	// Time is when it was decided.
	Time time.Time `json:"time"`
	// WithinSeconds is how long after its creation what happened to a node is taken
	// to belong to its start; percentiles and totals count nothing that came later.
	WithinSeconds float64 `json:"withinSeconds"`
	// Fleet is about all nodes.
	Fleet Group `json:"fleet"`
	// Overdue is how many nodes a gate holds beyond its deadline.
	Overdue int `json:"overdue"`
	// Later is how many nodes opened so long after their creation that they are not
	// counted in percentiles.
	Later int `json:"later"`
	// PodsRead tells whether first pods of workloads were looked for.
	PodsRead bool `json:"podsRead"`
	// Gates are all gates, by name.
	Gates []Gate `json:"gates"`
	// Pools and Zones are about the nodes of each, the slowest first.
	Pools []Group `json:"pools"`
	Zones []Group `json:"zones"`
	// Nodes are those that are held, for longest first, and then all others, the one
	// that took longest to open first.
	Nodes []Node `json:"nodes"`
	// Unread says what could not be read, so that it is not known.
	Unread []string `json:"unread,omitempty"`
}

// Group is what is known of some nodes.
type Group struct {
	// Name is what they have in common; empty for those that have nothing.
	Name string `json:"name"`
	// Nodes is how many there are, and Held how many of them are held by a gate.
	Nodes int `json:"nodes"`
	Held  int `json:"held"`
	// Ready is how long after their creation they became ready, Opened when the last
	// gate opened, and FirstPod how long after that the first pod was bound.
	Ready    Spread `json:"ready"`
	Opened   Spread `json:"opened"`
	FirstPod Spread `json:"firstPod"`
}

// Gate is what is known of a gate on all nodes.
type Gate struct {
	Gate string `json:"gate"`
	// Mode is the gate's mode; missing for a record whose NodeGate is not known.
	Mode  v1alpha1.Mode `json:"mode,omitempty"`
	Taint string        `json:"taint,omitempty"`
	// CloseWhen tells that the gate is closed while its signals hold.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// NotInForce says why the gate is not in force; missing if it is.
	NotInForce string `json:"notInForce,omitempty"`
	// Open, Closed and Overdue are how many nodes it is so on.
	Open    int `json:"open"`
	Closed  int `json:"closed"`
	Overdue int `json:"overdue"`
	// Opened is how long after the nodes' creation it opened.
	Opened Spread `json:"opened"`
	// Phases are where that time went, summed up.
	Phases []Phase `json:"phases"`
	// Signals are the gate's, in its order.
	Signals []Signal `json:"signals"`
}

// Phase kinds, in the order in which they follow each other.
const (
	// PhaseStartUp is until the node was ready, or its signals held if that was
	// sooner.
	PhaseStartUp = "StartUp"
	// PhaseSignal is from then until the signal held that held last.
	PhaseSignal = "Signal"
	// PhaseUntold is from the start-up to the opening where a signal does not tell
	// since when it holds.
	PhaseUntold = "Untold"
	// PhaseSettling is from the last signal to the opening.
	PhaseSettling = "Settling"
)

// Phase is a part of the time from nodes' creation to a gate's opening.
type Phase struct {
	Kind string `json:"kind"`
	// Signal is the name of the signal, of PhaseSignal.
	Signal string `json:"signal,omitempty"`
	// Seconds is how long it took on all nodes together.
	Seconds float64 `json:"seconds"`
}

// Signal is what is known of a gate's signal on all nodes.
type Signal struct {
	Name string `json:"name"`
	// Held is how long after the nodes' creation it began to hold.
	Held Spread `json:"held"`
	// Last is on how many nodes it held last, so that the gate opened after it, and
	// AloneSeconds for how long all these gates waited for nothing else.
	Last         int     `json:"last"`
	AloneSeconds float64 `json:"aloneSeconds"`
	// Waiting is how many nodes wait for it now.
	Waiting int `json:"waiting"`
}

// Node is one node's life, and where the node is.
type Node struct {
	Pool string `json:"pool,omitempty"`
	Zone string `json:"zone,omitempty"`
	timeline.Life
}

// Facts are what a report is made of.
type Facts struct {
	Cluster string
	Time    time.Time
	Gates   []gate.Gate
	// Refused says, by name, why gates are not in force.
	Refused map[string]string
	Nodes   []Node
	// PodsRead tells whether all pods were read.
	PodsRead bool
	Unread   []string
	// Within is how long after its creation what happened to a node is taken to
	// belong to its start.
	Within time.Duration
}

// New makes a report.
func New(f *Facts) *Report {
	r := &Report{
		Cluster: f.Cluster, Time: f.Time.UTC(), WithinSeconds: f.Within.Seconds(), PodsRead: f.PodsRead,
		Nodes: f.Nodes, Unread: f.Unread,
	}
	c := newCount(f)
	for i := range f.Nodes {
		c.node(&f.Nodes[i])
	}
	r.Fleet, r.Overdue, r.Later = c.fleet.done(), c.overdue, c.later
	r.Gates, r.Pools, r.Zones = c.allGates(), groups(c.pools), groups(c.zones)
	slices.SortStableFunc(r.Nodes, func(a, b Node) int { return cmp.Or(slowestFirst(&a, &b), cmp.Compare(a.Node, b.Node)) })
	return r
}

// slowestFirst sorts what is held by since when, and then by how long it took.
func slowestFirst(a, b *Node) int {
	switch {
	case a.Held && b.Held: // nobody knows of an unknown time that it is long ago
		x, y := a.HeldSince(), b.HeldSince()
		return cmp.Or(cmp.Compare(order(x.IsZero()), order(y.IsZero())), x.Compare(y))
	case a.Held:
		return -1
	case b.Held:
		return 1
	}
	took := func(n *Node) time.Duration {
		if d, ok := n.Opened.After(n.Created); ok {
			return d
		}
		return -1
	}
	return cmp.Compare(took(b), took(a))
}

// order puts what is so after what is not.
func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// poolLabels are those by which node pools are known, in the order in which they
// are asked.
var poolLabels = []string{
	"karpenter.sh/nodepool",
	"cloud.google.com/gke-nodepool",
	"eks.amazonaws.com/nodegroup",
	"kubernetes.azure.com/agentpool",
	"agentpool",
}

// Place says in which pool and zone a node with these labels is. The pool is told
// by the label that is given or, where that is empty, by those of provisioners and
// clouds.
func Place(labels map[string]string, poolLabel string) (pool, zone string) {
	keys := poolLabels
	if poolLabel != "" {
		keys = []string{poolLabel}
	}
	for _, key := range keys {
		if pool = labels[key]; pool != "" {
			break
		}
	}
	return pool, labels[corev1.LabelTopologyZone]
}
