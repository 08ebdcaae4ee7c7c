// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/timeline"
)

// Report is the output of 'kubectl gate report' with -o json and -o yaml. Fields may be
// added, but are neither renamed nor changed in meaning. Durations are in seconds.
type Report struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster,omitempty"`
	// Time is the time of the decisions.
	Time time.Time `json:"time"`
	// WithinSeconds is the duration after a node's creation that counts as its start.
	// Percentiles and totals exclude later events.
	WithinSeconds float64 `json:"withinSeconds"`
	// Fleet contains the values of all nodes.
	Fleet Group `json:"fleet"`
	// Overdue is the number of nodes that a gate holds past its deadline.
	Overdue int `json:"overdue"`
	// Later is the number of nodes that are excluded from percentiles because they opened
	// too long after their creation or had been in use before.
	Later int `json:"later"`
	// PodsRead is true if workload pods were read.
	PodsRead bool `json:"podsRead"`
	// Gates are all gates, sorted by name.
	Gates []Gate `json:"gates"`
	// Pools and Zones contain one group for each pool and zone, slowest first.
	Pools []Group `json:"pools"`
	Zones []Group `json:"zones"`
	// Nodes are the held nodes, held longest first, followed by all others, slowest first.
	Nodes []Node `json:"nodes"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
}

// Group contains the values of a group of nodes.
type Group struct {
	// Name is the name of the pool or zone. Empty for nodes without one.
	Name string `json:"name"`
	// Nodes is the number of nodes, and Held the number of those that a gate holds.
	Nodes int `json:"nodes"`
	Held  int `json:"held"`
	// Ready is the time from creation until the nodes became ready, Opened the time from
	// creation until the last gate opened, and FirstPod the time from then until the first
	// workload pod was bound.
	Ready    Spread `json:"ready"`
	Opened   Spread `json:"opened"`
	FirstPod Spread `json:"firstPod"`
}

// Gate contains the values of a gate on all nodes.
type Gate struct {
	Gate string `json:"gate"`
	// Mode is the mode of the gate. Empty if the NodeGate does not exist.
	Mode  v1alpha1.Mode `json:"mode,omitempty"`
	Taint string        `json:"taint,omitempty"`
	// CloseWhen is true if the gate is closed while its signals hold.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// NotInForce is the reason why the gate is not in force. Empty if it is in force.
	NotInForce string `json:"notInForce,omitempty"`
	// Open, Closed and Overdue are numbers of nodes. A closeWhen gate is open on every node that it
	// selects unless it is closed there. A gate in DryRun is open on no node, except one that still
	// has the gate's record.
	Open    int `json:"open"`
	Closed  int `json:"closed"`
	Overdue int `json:"overdue"`
	// opening is the number of nodes that the gate holds and on which the controller is about to open
	// it. closing is the number of nodes on which the controller is about to close it, so that it holds
	// them.
	opening, closing int
	// Opened is the time from the nodes' creation until the gate opened.
	Opened Spread `json:"opened"`
	// Phases divide this time, summed over all nodes.
	Phases []Phase `json:"phases"`
	// Signals are the gate's signals in the order of its spec.
	Signals []Signal `json:"signals"`
}

// Kinds of phases, in chronological order.
const (
	// PhaseStartUp lasts until the node was ready, or until all signals held if that was
	// earlier.
	PhaseStartUp = "StartUp"
	// PhaseSignal lasts from then until the last signal held.
	PhaseSignal = "Signal"
	// PhaseUntold lasts from the start-up to the opening, if the time of a signal is
	// unknown.
	PhaseUntold = "Untold"
	// PhaseSettling lasts from the last signal to the opening.
	PhaseSettling = "Settling"
)

// Phase is a part of the time from the nodes' creation to a gate's opening.
type Phase struct {
	Kind string `json:"kind"`
	// Signal is the name of the signal of a PhaseSignal.
	Signal string `json:"signal,omitempty"`
	// Seconds is the duration, summed over all nodes.
	Seconds float64 `json:"seconds"`
}

// Signal contains the values of a gate's signal on all nodes.
type Signal struct {
	Name string `json:"name"`
	// Held is the time from the nodes' creation until the signal started to hold.
	Held Spread `json:"held"`
	// Last is the number of nodes on which the signal held last. AloneSeconds is the time,
	// summed over these nodes, for which the gate waited for this signal alone.
	Last         int     `json:"last"`
	AloneSeconds float64 `json:"aloneSeconds"`
	// Waiting is the number of nodes that currently wait for the signal.
	Waiting int `json:"waiting"`
	// holding is the number of these nodes that the gate holds.
	holding int
}

// Node is the history of a node, with its pool and zone.
type Node struct {
	Pool string `json:"pool,omitempty"`
	Zone string `json:"zone,omitempty"`
	timeline.History
	// unrecorded are the closeWhen gates that are open on the node without a record, and therefore
	// have no history there.
	unrecorded []string
	// closing are the gates that are about to hold the node.
	closing []string
}

// Facts are the input of a report.
type Facts struct {
	Cluster string
	Time    time.Time
	Gates   *gateset.Set
	Nodes   []Node
	// PodsRead is true if all pods were read.
	PodsRead bool
	Unread   []string
	// Within is the duration after a node's creation that counts as its start.
	Within time.Duration
}

// Trace sets the nodes, which must be those of the whole fleet: it decides about each of them, and reconstructs its history from
// the decision. pods contains the pods of each node if they were read.
func (f *Facts) Trace(all []gate.Facts, pods map[string]*gate.PodList, poolLabel string) {
	f.Nodes = make([]Node, 0, len(all))
	f.Gates.SetGroups(all, f.Time)
	for i := range all {
		facts := &all[i]
		if f.PodsRead {
			if facts.AllPods = pods[facts.Node.Name]; facts.AllPods == nil {
				facts.AllPods = &gate.PodList{At: f.Time}
			}
		}
		d := f.Gates.Decide(facts, f.Time)
		n := Node{History: timeline.Trace(f.Gates.Gates, facts, &d, facts.AllPods, f.Time)}
		n.Pool, n.Zone = place(facts.Node.Labels, poolLabel)
		n.unrecorded, n.closing = unrecorded(f.Gates, &n.History, &d), closing(f.Gates, &facts.Node, &d)
		f.Nodes = append(f.Nodes, n)
	}
}

// unrecorded returns the closeWhen gates that are open on a node without a record.
func unrecorded(gates *gateset.Set, l *timeline.History, d *gate.Decision) (names []string) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		recorded := slices.ContainsFunc(l.Gates, func(g timeline.Gate) bool { return g.Gate == v.Gate })
		if g, known := gates.Gate(v.Gate); known && g.CloseWhen && !v.DryRun && !recorded && v.Before == v1alpha1.StateOpen {
			names = append(names, v.Gate)
		}
	}
	return names
}

// closing returns the gates that the controller is about to close on a node, when their budgets allow it,
// and that keep pods off it then.
func closing(gates *gateset.Set, n *gate.Node, d *gate.Decision) (names []string) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		g, known := gates.Gate(v.Gate)
		if !known || v.DryRun {
			continue
		}
		throttled := v.Wants == gate.WantBudget && g.TaintInUse().Effect != corev1.TaintEffectPreferNoSchedule
		if throttled || v.Closed() && !gate.IsSoft(v.TaintOn(n, d, g)) {
			names = append(names, v.Gate)
		}
	}
	return names
}

// New returns the report on the facts.
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

// heldAtLeastSince returns the time since which a gate is known to have held the node, or the zero time
// if nothing is known. An adopted taint may have been there before.
func (n *Node) heldAtLeastSince() time.Time {
	since := n.HeldSince()
	if !since.IsZero() {
		return since
	}
	for i := range n.Gates {
		if g := &n.Gates[i]; g.Holds() {
			since = gate.Earliest(since, g.Closed.At)
		}
	}
	return since
}

// slowestFirst compares held nodes by the time since which they are held, and then other
// nodes by the time that they took to open.
func slowestFirst(a, b *Node) int {
	switch {
	case a.Held && b.Held: // unknown times come last
		x, y := a.heldAtLeastSince(), b.heldAtLeastSince()
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

// order sorts false before true.
func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// poolLabels are the labels of node pools, in order of precedence.
var poolLabels = []string{
	"karpenter.sh/nodepool",
	"cloud.google.com/gke-nodepool",
	"eks.amazonaws.com/nodegroup",
	"kubernetes.azure.com/agentpool",
	"agentpool",
}

// place returns the pool and the zone of a node with these labels. The pool is the value of
// poolLabel or, if that is empty, of the labels that provisioners and clouds set.
func place(labels map[string]string, poolLabel string) (pool, zone string) {
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
