// SPDX-License-Identifier: Apache-2.0

// Package preview predicts what new, changed or deleted gates would do to the nodes
// of a cluster. It makes the controller's decision about every node twice, with the
// current gates and with the changed gates, and returns the difference. It does no
// I/O.
package preview

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/descheduler"
	"github.com/nodegate/nodegate/internal/gate"
)

// World is the known state of a cluster. It is not modified.
type World struct {
	// Declared are the existing NodeGates.
	Declared []v1alpha1.NodeGate
	// Nodes are all nodes, sorted by name, with the facts that Needs requires.
	Nodes []gate.Facts
	// Pods are all pods, by node. Nil if they were not read.
	Pods map[string]*gate.PodList
	// Deschedulers are the policies of the deschedulers in the cluster.
	Deschedulers []descheduler.Policy
	// Policy contains the taint keys that gates may use. Nil parts are unknown.
	Policy gate.KeyPolicy
	Now    time.Time
}

// Change is a change of the gates.
type Change struct {
	// Apply are gates to create, or to replace the gates of the same names.
	Apply []v1alpha1.NodeGate
	// Delete are the names of gates to delete.
	Delete []string
	// DaemonSets are the DaemonSets after the change. Nil if it does not change any.
	DaemonSets *gate.DaemonSets
}

// Preview is the effect of a change. Fields may be added, but are neither renamed nor
// changed in meaning.
type Preview struct {
	// Time is the time of the decisions.
	Time time.Time `json:"time"`
	// Nodes is the number of nodes of the cluster.
	Nodes int `json:"nodes"`
	// Changes is true if the change would, now or later, close or open a gate on an
	// existing node, make the node a member or no longer a member, or change its taint.
	// A change that only rewrites records does not count.
	Changes bool `json:"changes"`
	// Gates are the gates of the change, in its order, followed by other gates that the
	// change affects.
	Gates []Gate `json:"gates"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
	// Incomplete is true if facts about nodes could not be read, so that there may be
	// changes that are not predicted.
	Incomplete bool `json:"incomplete,omitempty"`

	wantsPods bool
}

// Action is what a change does to a gate.
type Action string

// Create, Modify and Delete are the requested actions.
const (
	Create Action = "Create"
	Modify Action = "Modify"
	Delete Action = "Delete"
	// Keep means that the gate already has the requested spec.
	Keep Action = "Keep"
	// Affect means that the gate is not part of the change.
	Affect Action = "Affect"
)

// Gate is the effect of a change on one gate and its nodes.
type Gate struct {
	Gate   string `json:"gate"`
	Action Action `json:"action"`
	// Mode is the mode of the gate after the change. Empty for a deleted gate.
	Mode v1alpha1.Mode `json:"mode,omitempty"`
	// Taints are the taints that the gate adds to nodes: the first one is for new nodes.
	// For a deleted gate, they are the taints that it added.
	Taints []string `json:"taints,omitempty"`
	// InForce is true if the gate would be accepted. Message is the reason why it would
	// not, or a remark.
	InForce bool   `json:"inForce"`
	Message string `json:"message,omitempty"`
	// Selected is the number of nodes that the gate selects.
	Selected int `json:"selected"`
	// Groups contain all nodes that the gate selects or that have a record of it. Each
	// node is in one group.
	Groups []Group `json:"groups"`
	// Budget contains the budget by zone. Empty if no node requires budget.
	Budget []Zone `json:"budget,omitempty"`
	// NewNodes describes what a node that is created now would wait for.
	NewNodes *NewNodes `json:"newNodes,omitempty"`
	// Evictions are the pods that a NoExecute taint would remove from the nodes to which
	// it would be added, now or later. Nil if there are no such nodes.
	Evictions *Evictions `json:"evictions,omitempty"`
	// Descheduled are the pods that a descheduler would evict from the nodes to which a
	// taint would be added that by itself evicts no running pod.
	Descheduled []Descheduled `json:"descheduled,omitempty"`
	// Problems are the reasons why the gate would not work as intended.
	Problems []string `json:"problems,omitempty"`
}

// What is the effect of a change on a node.
type What string

// Effects on a node.
const (
	// Closes means that the gate closes immediately, within the budget.
	Closes What = "Closes"
	// Waits means that the gate closes as soon as there is budget.
	Waits What = "WaitsForBudget"
	// Lapses means that the gate closes later, within the budget, unless the signals
	// hold again.
	Lapses What = "ClosesLater"
	Opens  What = "Opens"
	// Joins means that the node becomes a member and the gate is open.
	Joins What = "Joins"
	// Leaves means that the gate is open and the node ceases to be a member.
	Leaves What = "Leaves"
	// HandsOver means that the node becomes a member of another gate with the same taint
	// instead, in the same state.
	HandsOver What = "HandsOver"
	// Retaints means that the gate stays closed with another taint.
	Retaints    What = "ChangesTaint"
	StaysOpen   What = "StaysOpen"
	StaysClosed What = "StaysClosed"
	// Outside means that the gate selects the node, but the node is not a member.
	Outside What = "Outside"
)

// order is the order of groups in a Preview.
var order = []What{Closes, Waits, Lapses, Opens, Retaints, Joins, HandsOver, Leaves, StaysClosed, StaysOpen, Outside}

// moves reports whether something would be written to the nodes.
func (w What) moves() bool { return w != StaysOpen && w != StaysClosed && w != Outside }

// Acts reports whether something would be written to the group's nodes because of the
// change.
func (g *Group) Acts() bool { return g.What.moves() && !g.Anyway && !g.DryRun }

// addsTaint reports whether the gate would add a taint to the group's nodes, now or later.
func (g *Group) addsTaint() bool {
	return g.What == Closes || g.What == Waits || g.What == Lapses || g.What == Retaints
}

// AddsTaints reports whether the change would add a taint to an existing node, now or later.
func (p *Preview) AddsTaints() bool {
	return slices.ContainsFunc(p.Gates, func(g Gate) bool { return len(g.tainted()) > 0 })
}

// tainted returns the groups to whose nodes the gate would add a taint, now or later. What an
// unchanged gate does also without the change does not count.
func (g *Gate) tainted() (all []Group) {
	for _, of := range g.Groups {
		if of.addsTaint() && (g.Action != Keep || !of.Anyway) {
			all = append(all, of)
		}
	}
	return all
}

// Group is a set of nodes with the same effect for the same reason.
type Group struct {
	What What   `json:"what"`
	Why  string `json:"why,omitempty"`
	// Anyway is true if the effect also occurs without the change.
	Anyway bool `json:"anyway,omitempty"`
	// DryRun is true if the gate is in DryRun and the effect would occur only after
	// switching it to Enforce.
	DryRun bool     `json:"dryRun,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Zone is the budget of a gate in one zone.
type Zone struct {
	// Zone is the name of the zone. Empty for nodes without a zone.
	Zone string `json:"zone"`
	// Nodes is the number of nodes that the gate selects in the zone. MaxReclosed is the
	// maximum number of them that may be closed at a time.
	Nodes       int `json:"nodes"`
	MaxReclosed int `json:"maxReclosed"`
	// Closed is the number of nodes that are closed now, Closes the number of nodes that
	// would close immediately, and Waits the number of nodes that would wait for budget.
	Closed int `json:"closed"`
	Closes int `json:"closes"`
	Waits  int `json:"waits"`
}

// NewNodes describes what a node that is created now would wait for. It is derived from
// the current signals on existing nodes, as if the gate had closed at their creation.
type NewNodes struct {
	// Nodes is the number of nodes that were evaluated. Open is the number of nodes on
	// which the gate would open.
	Nodes int `json:"nodes"`
	Open  int `json:"open"`
	// Blocked is the number of nodes that are not representative of new ones, because
	// they are unreachable, shutting down or being set up.
	Blocked int `json:"blocked,omitempty"`
	// Together is true if the gate also waits for the node's group, which is not considered.
	Together bool `json:"together,omitempty"`
	// OpenAfterSeconds and MinClosedSeconds are the gate's waits, which are not considered
	// either.
	OpenAfterSeconds int64         `json:"openAfterSeconds,omitempty"`
	MinClosedSeconds int64         `json:"minClosedSeconds,omitempty"`
	Signals          []SignalCount `json:"signals"`
}

// SignalCount counts the nodes on which a signal holds.
type SignalCount struct {
	Name  string `json:"name"`
	Holds int    `json:"holds"`
	// Others are the nodes on which the signal does not hold or is unknown.
	Others []SignalGroup `json:"others,omitempty"`
}

// SignalGroup is a set of nodes with the same state and reason of a signal. Message is
// that of the first node.
type SignalGroup struct {
	State   string                 `json:"state"`
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	Nodes   []string               `json:"nodes"`
}

// Evictions are pods that do not tolerate the taint of a gate, and would be evicted because
// of it.
type Evictions struct {
	// Unknown is true if pods were not read.
	Unknown bool `json:"unknown,omitempty"`
	// Pods is the number of pods, Daemons the number of those that belong to a
	// DaemonSet, and Nodes the number of nodes on which they run.
	Pods    int `json:"pods"`
	Daemons int `json:"daemons"`
	Nodes   int `json:"nodes"`
	// Examples are the first pods, as namespace/name.
	Examples []string `json:"examples,omitempty"`
}

// Descheduled are the pods that a descheduler would evict because they do not tolerate a
// taint: pods with a controller, without those of DaemonSets. It may spare some of them for
// other reasons, such as their priority or their volumes.
type Descheduled struct {
	Evictions
	// By is the profile of the descheduler, and the ConfigMap of its policy.
	By string `json:"by"`
	// Exemption says what to change in the policy, so that these pods are not evicted.
	Exemption string `json:"exemption"`
}
