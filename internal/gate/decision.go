// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Decision says what should be on a node, and why. Its effects belong into one
// write: Taints, Records and Stamps together, or none. Events, metrics and logs
// derive from Verdicts, after that write succeeded.
type Decision struct {
	// Taints is the node's whole list of taints as it should be. Taints that are
	// not a gate's stay as they are, in their order.
	Taints []corev1.Taint
	// Records are the records to be written, by gate; an empty text removes the
	// record. Records that are not here stay as they are.
	Records map[string]string
	// Stamps are other annotations to be written, by key.
	Stamps map[string]string
	// Withdrawn are overrides to be taken off the node, by gate: with nothing to be
	// said of one that has ended, or else with why it is refused.
	Withdrawn map[string]string
	// Ignored are overrides that stay and are not followed, by gate, and why.
	Ignored map[string]string
	// Changes tells whether there is anything to write.
	Changes bool
	// Verdicts are about every gate that concerns the node, by name.
	Verdicts []Verdict
	// Settled tells whether the gates, once this is written, have nothing left to do
	// with each other nor with anything but the node: then the next decision may be
	// about some of them alone (see Parts), as long as it is not time to recheck.
	Settled bool
	// Recheck is when the decision may change by the passing of time alone, if it
	// asks for no change now. Zero when it will not. It is now where a dry run has
	// gone a step, which nothing but the next decision will follow.
	Recheck time.Time
}

// Want is a permission, or something to go by, that a verdict waits for.
type Want string

const (
	// WantBudget asks to close under the gate's budget.
	WantBudget Want = "Budget"
	// WantPace asks to write to an existing node at a modest rate.
	WantPace Want = "Pace"
	// WantPods asks to see all pods of the node (Facts.AllPods).
	WantPods Want = "Pods"
	// WantIdle waits for the node to be idle, which it was not by the pods that
	// were seen: show them again in a while.
	WantIdle Want = "Idle"
)

// Verdict returns what is decided about a gate; nil if it has nothing to do with the
// node.
func (d *Decision) Verdict(name string) *Verdict {
	for i := range d.Verdicts {
		if d.Verdicts[i].Gate == name {
			return &d.Verdicts[i]
		}
	}
	return nil
}

// Verdict is what was decided about one gate on the node.
type Verdict struct {
	// Gate is the gate's name.
	Gate string
	// Selected tells whether the gate exists and selects the node.
	Selected bool
	// Before and After are the gate's states on the node, as people would have it
	// too (see Overridden): StateClosed, StateOpen, or empty where the node is not,
	// or no longer, a member of the gate. Every node that a CloseWhen gate selects is
	// a member, until it is found with the gate's taint put on by somebody else, and
	// opened.
	Before, After string
	// Reason says why the gate is, or has just come, into its state.
	Reason v1alpha1.Reason
	// Since is when it came into the state After.
	Since time.Time
	// ClosedSince is when a gate that just opened had been closed.
	ClosedSince time.Time
	// Closure is the time in which a gate that just opened by its signals had been
	// closed. Nil for any other verdict.
	Closure *Closure
	// Blocked says why no signal can open the gate at present. Empty when
	// nothing stands in the way.
	Blocked v1alpha1.ReadingReason
	// BlockedUntil is when that will be over. Zero when it is not a matter of time.
	BlockedUntil time.Time
	// Readings are what the gate's signals say, in the gate's order. Nil where
	// nothing depends on them.
	Readings []Reading
	// Wants is the permission that the gate waits for. Give it by naming the
	// gate in Facts.Granted, if nothing else is said.
	Wants Want
	// LostSince is since when an open gate's signals have not held. Zero while
	// they hold. To be handed back in Facts.LostSince.
	LostSince time.Time
	// RolloutSince is the same for signals that do not hold only because of a
	// rollout. To be handed back in Facts.RolloutSince.
	RolloutSince time.Time
	// Steady is what is to be remembered of a closed gate's signals, if the gate
	// wants them to say for a while what opens it; nil for nothing. To be handed
	// back in Facts.Steady.
	Steady *Steady
	// Overdue is true while the gate is closed and its deadline has passed.
	Overdue bool
	// Due is when the closed gate's deadline passes if its signals go on saying what
	// they say. Zero where none is ahead, and while the node is silent, for then its
	// clock stands still.
	Due time.Time
	// PassedDeadline is true when the deadline passes by this decision.
	PassedDeadline bool
	// Contended is true while another writer keeps undoing the gate's taint.
	Contended bool
	// Overridden tells of a person's word for the gate on this node, that is heeded
	// or just ends. Nil where there is none.
	Overridden *Overridden
	// Held is true when the record stays only because it is not known whether
	// its gate still exists, or because its taint may not be touched.
	Held bool
	// DryRun is true of a gate in dry run that holds nothing on the node: the verdict
	// is what would be, and nothing of it is done or to be told as done.
	DryRun bool
	// Shadow is the record as it would stand on the node, of a gate in dry run. To be
	// handed back in Facts.Shadow.
	Shadow string
}

// Opened tells whether the gate opens by this decision.
func (v *Verdict) Opened() bool {
	return v.Before != v1alpha1.StateOpen && v.After == v1alpha1.StateOpen ||
		v.Before == v1alpha1.StateClosed && v.After == ""
}

// Closed tells whether the gate closes by this decision.
func (v *Verdict) Closed() bool {
	return v.Before != v1alpha1.StateClosed && v.After == v1alpha1.StateClosed
}

// Opens tells whether a gate opens on the word of its signals, or would but for an
// override. Such a write is good for one boot of the node only.
func (d *Decision) Opens() bool {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		own := v.Overridden != nil && v.Overridden.Own == v1alpha1.StateOpen
		if !v.DryRun && (own || v.Opened() && v.After == v1alpha1.StateOpen) {
			return true
		}
	}
	return false
}

// Waiting returns the first signal, in the gate's order, that the gate waits
// for, by its index, or -1.
func (v *Verdict) Waiting() int {
	for i := range v.Readings {
		if v.Readings[i].State != Holds {
			return i
		}
	}
	return -1
}

// Obstacle says why no signal can open the gate at present, if one would.
func (v *Verdict) Obstacle() Reading {
	r := Reading{Reason: v.Blocked}
	if !v.BlockedUntil.IsZero() {
		r.Subject = v.BlockedUntil.UTC().Add(time.Second - 1).Format(time.RFC3339)
	}
	return r
}
