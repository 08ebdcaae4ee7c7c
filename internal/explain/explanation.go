// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Explanation is the output of 'kubectl gate why' with -o json and -o yaml. Fields
// may be added, but are neither renamed nor changed in meaning.
type Explanation struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Time is the time of the decision.
	Time time.Time `json:"time"`
	// Held is true if a gate holds the node or is about to.
	Held bool `json:"held"`
	// OptedOut is true if a label excludes the node from all gates. OptOutLabel is the
	// key of this label.
	OptedOut    bool   `json:"optedOut,omitempty"`
	OptOutLabel string `json:"optOutLabel,omitempty"`
	// IgnoredOptOutLabel is the key of an opt-out label that has no effect.
	IgnoredOptOutLabel string `json:"ignoredOptOutLabel,omitempty"`
	// Gates are the gates that apply to the node: those that hold it first, then by
	// name.
	Gates []Gate `json:"gates"`
	// IgnoredOverrides contains, by gate name, the reasons why overrides on the node
	// have no effect.
	IgnoredOverrides map[string]string `json:"ignoredOverrides,omitempty"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
	// Incomplete is true if no gate holds the node, but one may be about to, depending on what could
	// not be read.
	Incomplete bool `json:"incomplete,omitempty"`
}

// StateNone is the state of a gate if the node is not a member of it.
const StateNone = "None"

// Gate explains the state of a gate on the node. For a gate in DryRun that
// has no record there, all fields describe what would happen if its mode were
// switched to Enforce now.
type Gate struct {
	// Gate is the name of the gate.
	Gate string `json:"gate"`
	// Unknown is true if the NodeGate does not exist and only a record on the node
	// remains.
	Unknown bool `json:"unknown,omitempty"`
	// DryRun is true if the fields describe what would happen.
	DryRun bool `json:"dryRun,omitempty"`
	// State is Closed, Open or None.
	State string `json:"state"`
	// Becomes is the state that the gate is about to change to. Empty if the state does
	// not change.
	Becomes string `json:"becomes,omitempty"`
	// Reason is the reason for the gate's state, or for the change that is about to
	// happen.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Since is the time at which the gate changed to its state.
	Since time.Time `json:"since,omitzero"`
	// Taint is the taint that is on the node while the gate is closed.
	Taint string `json:"taint,omitempty"`
	// TaintMissing is true if another writer has removed the taint from the node while the gate is
	// closed. The node accepts pods until the controller adds the taint again.
	TaintMissing bool `json:"taintMissing,omitempty"`
	// Soft is true if the taint has the effect PreferNoSchedule, which does not keep pods off the
	// node. The gate then does not hold the node.
	Soft bool `json:"soft,omitempty"`
	// CloseWhen is true if the gate is closed while its signals hold, and false if it is
	// closed until they hold.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// Signals are the gate's signals in the order of its spec. Empty if the state does
	// not depend on them.
	Signals []Signal `json:"signals,omitempty"`
	// Obstacle is the reason why no signal can open the gate at present.
	Obstacle *Obstacle `json:"obstacle,omitempty"`
	// ClosesBy is the latest time at which the open gate closes unless its signals hold
	// again.
	ClosesBy time.Time `json:"closesBy,omitzero"`
	// Deadline is the time at which the gate's deadline passes unless its signals
	// change. Overdue is true if it has passed.
	Deadline time.Time `json:"deadline,omitzero"`
	Overdue  bool      `json:"overdue,omitempty"`
	// Condition is the type of the node condition that reports that the deadline has
	// passed, if the node has it. ConditionThrottled is true if the gate waits for budget
	// or for the permission to write it.
	Condition          string `json:"condition,omitempty"`
	ConditionThrottled bool   `json:"conditionThrottled,omitempty"`
	// Override is the manual override of the gate on this node.
	Override *Override `json:"override,omitempty"`
	// Group is the group of the node, for a gate that opens together.
	Group *Group `json:"group,omitempty"`
	// Throttled is true if the gate waits for budget to close.
	Throttled bool `json:"throttled,omitempty"`
	// NonMember is the reason why the node is not a member of the gate.
	NonMember v1alpha1.NonMemberReason `json:"nonMember,omitempty"`
	// Ring names the gates, including this one, that would open and close each other
	// endlessly. They keep their state on the node.
	Ring string `json:"ring,omitempty"`
	// Contended is true if another writer repeatedly reverts the gate's taint.
	Contended bool `json:"contended,omitempty"`
	// NotInForce is the reason why the gate is not in force. Empty if it is in force.
	NotInForce string `json:"notInForce,omitempty"`
	// NotReady is the message and reason of the gate's condition Ready if it is False. Empty if
	// the gate is neither closed on the node nor about to change.
	NotReady string `json:"notReady,omitempty"`
	// Next is what happens next or what to do.
	Next string `json:"next,omitempty"`
}

// Signal is the reading of a signal.
type Signal struct {
	Name string `json:"name"`
	// State is Holds, NotYet or Unknown.
	State   string                 `json:"state"`
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	// Since is the time at which the signal changed to this state, if the API reports it.
	Since time.Time `json:"since,omitzero"`
}

// Group is the group of a node. The gate opens on its nodes together.
type Group struct {
	// Name is the name of the group. Empty if the node has no label that names it.
	Name string `json:"name,omitempty"`
	// Fit is the number of nodes that are fit, and Needed the number that must be. Needed
	// is zero if the size of the group is unknown.
	Fit    int `json:"fit"`
	Needed int `json:"needed,omitempty"`
	// Unfit contains the names of the first other nodes that are not fit, and UnfitCount
	// is the number of all of them.
	Unfit      []string `json:"unfit,omitempty"`
	UnfitCount int      `json:"unfitCount,omitempty"`
	// Complete is true if enough nodes are fit. Message describes the group.
	Complete bool   `json:"complete"`
	Message  string `json:"message"`
}

// Obstacle is the reason why no signal can open a gate at present.
type Obstacle struct {
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	// Until is the latest time at which the obstacle ends. Zero if that does not depend on
	// time.
	Until time.Time `json:"until,omitzero"`
}

// Override is a manual override of a gate on a node.
type Override struct {
	// State is Open or Closed.
	State string `json:"state"`
	// Until is the time at which the override ends, and Reason the user's reason. Both are
	// absent if the gate keeps its state, for example while it is paused or not accepted: the
	// override then stays in effect until the gate acts again.
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// Own is the gate's state without the override, and OwnReason the reason for it.
	Own       string          `json:"own"`
	OwnReason v1alpha1.Reason `json:"ownReason,omitempty"`
	// HeldBy is the name of another gate that keeps the taint on the node.
	HeldBy string `json:"heldBy,omitempty"`
}
