// SPDX-License-Identifier: Apache-2.0

// Package preview foretells what new, changed or deleted gates would do to a
// fleet: it decides about every node as the controller would, twice, with the gates
// as they are and as they would be, and tells the difference. It reads and changes
// nothing.
package preview

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// World is what is known of a cluster. It is not changed.
type World struct {
	// Declared are the NodeGates that there are.
	Declared []v1alpha1.NodeGate
	// Nodes are all nodes, by name, with what Needs asks for.
	Nodes []gate.Facts
	// Pods are all pods, by node. Nil where they have not been read.
	Pods map[string]*gate.PodList
	// Policy is what gates are allowed; what is nil in it is not known.
	Policy gate.KeyPolicy
	Now    time.Time
}

// Change is what is to become of the gates.
type Change struct {
	// Apply are gates that are new, or that replace the one of their name.
	Apply []v1alpha1.NodeGate
	// Delete names gates that are to go.
	Delete []string
}

// Preview is what a change would do. Fields are added, and neither renamed nor
// given another meaning.
type Preview struct {
	// Time is when it was decided.
	Time time.Time `json:"time"`
	// Nodes is how many nodes the cluster has.
	Nodes int `json:"nodes"`
	// Changes tells whether the change would have a gate close, open, take in or let
	// go a node that is there, or change its taint, now or later. That a record is
	// written anew is none.
	Changes bool `json:"changes"`
	// Gates are those of the change, in its order, and then any other that would
	// do something else because of it.
	Gates []Gate `json:"gates"`
	// Unread says what could not be read, so that it is not known.
	Unread []string `json:"unread,omitempty"`
}

// Action is what becomes of a gate by the change.
type Action string

// The first three are what is asked for.
const (
	Create Action = "Create"
	Modify Action = "Modify"
	Delete Action = "Delete"
	// Keep is said of a gate that is already as it would be.
	Keep Action = "Keep"
	// Affect is said of a gate that is not part of the change.
	Affect Action = "Affect"
)

// Gate is what would become of nodes by one gate.
type Gate struct {
	Gate   string `json:"gate"`
	Action Action `json:"action"`
	// Mode is the mode that the gate would be in; missing of one that goes.
	Mode v1alpha1.Mode `json:"mode,omitempty"`
	// Taints are what it puts on nodes: the first on new ones. Of a gate that goes,
	// what it has put there.
	Taints []string `json:"taints,omitempty"`
	// InForce tells whether the gate would be accepted, and Message says why not, or
	// what else there is to say about it.
	InForce bool   `json:"inForce"`
	Message string `json:"message,omitempty"`
	// Selected is how many nodes it selects.
	Selected int `json:"selected"`
	// Groups have every node that the gate selects or that has a record of it, each
	// once.
	Groups []Group `json:"groups"`
	// Budget says how closing is bounded, by zone; missing where nothing asks for it.
	Budget []Zone `json:"budget,omitempty"`
	// NewNodes says what a node would wait for that is created now.
	NewNodes *NewNodes `json:"newNodes,omitempty"`
	// Evictions are pods that a NoExecute taint would remove from the nodes that
	// would be closed, now or later. Missing where there are none.
	Evictions *Evictions `json:"evictions,omitempty"`
	// Problems are what keeps the gate from working as it is meant to.
	Problems []string `json:"problems,omitempty"`
}

// What would become of a node.
type What string

// What there is to become.
const (
	// Closes is what happens at once, within the budget.
	Closes What = "Closes"
	// Waits is to be closed as soon as the budget lets it.
	Waits What = "WaitsForBudget"
	// Lapses is to be closed, within the budget, when a wait is over, unless the
	// signals hold again.
	Lapses What = "ClosesLater"
	Opens  What = "Opens"
	// Joins is to become a member of the gate, which is open there.
	Joins What = "Joins"
	// Leaves is to cease to be a member of a gate that is open there.
	Leaves What = "Leaves"
	// HandsOver is to be a member of another gate with the same taint instead, as it
	// stands.
	HandsOver What = "HandsOver"
	// Retaints is to stay closed with another taint.
	Retaints    What = "ChangesTaint"
	StaysOpen   What = "StaysOpen"
	StaysClosed What = "StaysClosed"
	// Outside is to be no member of the gate although it selects the node.
	Outside What = "Outside"
)

// order is the order of groups.
var order = []What{Closes, Waits, Lapses, Opens, Retaints, Joins, HandsOver, Leaves, StaysClosed, StaysOpen, Outside}

// moves tells whether something would be written to the nodes.
func (w What) moves() bool { return w != StaysOpen && w != StaysClosed && w != Outside }

// Acts tells whether something would be written to the group's nodes because of
// the change.
func (g *Group) Acts() bool { return g.What.moves() && !g.Anyway && !g.DryRun }

// Group is nodes to which the same would happen for the same reason.
type Group struct {
	What What   `json:"what"`
	Why  string `json:"why,omitempty"`
	// Anyway tells that it happens without the change, too.
	Anyway bool `json:"anyway,omitempty"`
	// DryRun tells that it is what the gate, being in dry run, would do if it were
	// switched to Enforce: it is not done.
	DryRun bool     `json:"dryRun,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Zone is what a budget comes to in one zone.
type Zone struct {
	// Zone is its name; empty for that of the nodes without one.
	Zone string `json:"zone"`
	// Nodes is how many the gate selects there, and MaxReclosed how many of them
	// may be closed at a time.
	Nodes       int `json:"nodes"`
	MaxReclosed int `json:"maxReclosed"`
	// Closed is how many are already, Closes how many more would be at once, and
	// Waits how many would stand in line.
	Closed int `json:"closed"`
	Closes int `json:"closes"`
	Waits  int `json:"waits"`
}

// NewNodes is what a node that is created now would wait for, by what the signals
// say on the nodes that are there: as if each had been born into the gate.
type NewNodes struct {
	// Nodes is how many there are to go by, and Open on how many of them the gate
	// would open.
	Nodes int `json:"nodes"`
	Open  int `json:"open"`
	// Blocked is how many of them say nothing about new ones: they are silent,
	// shutting down or being set up.
	Blocked int           `json:"blocked,omitempty"`
	Signals []SignalCount `json:"signals"`
}

// SignalCount is on how many nodes a signal holds.
type SignalCount struct {
	Name  string `json:"name"`
	Holds int    `json:"holds"`
	// Others are the nodes on which it does not, or on which that is not known.
	Others []SignalGroup `json:"others,omitempty"`
}

// SignalGroup is nodes on which a signal says the same. Message is what it says
// on the first of them.
type SignalGroup struct {
	State   string                 `json:"state"`
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	Nodes   []string               `json:"nodes"`
}

// Evictions are pods that do not tolerate a NoExecute taint.
type Evictions struct {
	// Unknown tells that pods could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Pods is how many there are, and Daemons how many of these are daemons', on
	// how many Nodes.
	Pods    int `json:"pods"`
	Daemons int `json:"daemons"`
	Nodes   int `json:"nodes"`
	// Examples are the first few, as namespace/name.
	Examples []string `json:"examples,omitempty"`
}
