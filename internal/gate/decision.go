// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Decision is the desired state of a node, with the reasons. Taints, Records and Stamps
// must be written together, in one write. Events, metrics and logs derive from
// Verdicts, after the write has succeeded.
type Decision struct {
	// Taints is the desired list of the node's taints. Taints that do not belong to a
	// gate are unchanged and keep their order.
	Taints []corev1.Taint
	// Records contains the records to be written, by gate. An empty text removes the
	// record. Records that are not included do not change.
	Records map[string]string
	// DependsOn contains the gates whose records, or the absence of records, must not have
	// changed when the decision is written. They share a taint that is removed: if one of
	// them had closed in the meantime, the taint would have to stay.
	DependsOn []string
	// Carried contains taints that stay because a gate closes whose taint is already on
	// the node.
	Carried []corev1.Taint
	// Stamps contains other annotations to be written, by key.
	Stamps map[string]string
	// Conditions contains the node conditions to be written, by gate. Nil removes the
	// condition. They are not included in Changes: they are in the Node's status and are
	// written separately, when there is nothing else to write.
	Conditions map[string]*corev1.NodeCondition
	// Withdrawn contains the overrides to be removed from the node, by gate. The value
	// is empty if the override has ended; otherwise it is the reason why it is
	// rejected.
	Withdrawn map[string]string
	// Ignored contains the overrides that stay but are not applied, by gate, with the
	// reason.
	Ignored map[string]string
	// Changes reports whether there is anything to write.
	Changes bool
	// Verdicts contains one verdict for every gate that concerns the node, by name.
	Verdicts []Verdict
	// Settled reports whether, after this decision has been written, no gate waits for a
	// permission, depends on anything other than the node and its groups, or has a taint
	// that a gate of another part may have, and the decision need not be repeated at once.
	// The next decision may then cover only some of the gates (see Parts) until
	// Recheck.
	Settled bool
	// Recheck is the time at which the decision may change without a change of the
	// facts. Zero if there is no such time.
	Recheck time.Time
	// Again reports whether the decision must be repeated at once after it has been carried
	// out: a dry run has changed its shadow, and no write will cause another decision, or a
	// condition is to be written after the record.
	Again bool
}

// Want is a permission or a piece of information that a verdict waits for.
type Want string

const (
	// WantBudget requests permission to close within the gate's budget.
	WantBudget Want = "Budget"
	// WantPace requests permission to write to an existing node. Such writes are
	// rate-limited.
	WantPace Want = "Pace"
	// WantPods requests a list of all pods on the node (Facts.AllPods).
	WantPods Want = "Pods"
	// WantIdle waits for the node to become idle, which it was not according to the
	// listed pods. The pods must be listed again later.
	WantIdle Want = "Idle"
	// WantCondition requests permission to publish that the gate's deadline has passed,
	// on as many nodes as the gate's budget allows.
	WantCondition Want = "Condition"
)

// Verdict returns the verdict about a gate, or nil if the gate does not concern the
// node.
func (d *Decision) Verdict(name string) *Verdict {
	i, found := sort.Find(len(d.Verdicts), func(i int) int { return strings.Compare(name, d.Verdicts[i].Gate) })
	if !found {
		return nil
	}
	return &d.Verdicts[i]
}

// Verdict is the decision about one gate on the node.
type Verdict struct {
	// Gate is the gate's name.
	Gate string
	// Selected reports whether the gate exists and selects the node.
	Selected bool
	// Before and After are the gate's states on the node, including the effect of an
	// override (see Overridden): StateClosed, StateOpen, or empty if the node is not,
	// or no longer, a member of the gate. Every node that a CloseWhen gate selects is a
	// member. As an exception, Before is empty if the gate opens on a node to which
	// another writer added the gate's taint.
	Before, After string
	// Reason is the reason for the gate's state, or for its latest change.
	Reason v1alpha1.Reason
	// Since is the time at which the gate entered the state After.
	Since time.Time
	// ClosedSince is the time at which a gate that opens by this decision had closed.
	ClosedSince time.Time
	// Closure is the period during which a gate that opens because of its signals was
	// closed. Nil for any other verdict.
	Closure *Closure
	// Blocked is the reason why no signal can open the gate at present. Empty if
	// nothing prevents it.
	Blocked v1alpha1.ReadingReason
	// BlockedUntil is the time at which Blocked ends. Zero if it does not depend on
	// time.
	BlockedUntil time.Time
	// Readings contains the readings of the gate's signals, in the gate's order. Nil if
	// the decision does not depend on them.
	Readings []Reading
	// Wants is the permission that the gate waits for. Unless documented otherwise at
	// the constant, it is granted by adding the gate to Facts.Granted.
	Wants Want
	// NonMember is the reason why the node is not a member of a gate that selects it.
	// Empty for a member.
	NonMember v1alpha1.NonMemberReason
	// LeftSince is the time since which the gate has no longer selected this member.
	// Zero while it selects the node. Must be passed back in Facts.LeftSince.
	LeftSince time.Time
	// Leaves is the time at which the node ceases to be a member because it is no
	// longer selected. Zero if it remains a member.
	Leaves time.Time
	// Lost is what has to be remembered about an open gate's signals that do not hold, in
	// the order of Readings. Nil if nothing has to be remembered. Must be passed back in
	// Facts.Lost, unless the gate's signals have been edited since.
	Lost []Lost
	// GroupWait is the time since which the group of an open node has been incomplete,
	// for a gate that closes together. Must be passed back in Facts.GroupWaits.
	GroupWait GroupWait
	// Fit reports whether the node counts as fit in its group, for a gate that opens
	// together. It does not depend on the other nodes of the group. The controller
	// computes Facts.Groups of the others from it.
	Fit bool
	// Group is the state of the node's group. Nil for a gate that does not open together.
	Group *GroupState
	// Steady is what has to be remembered about a closed gate's signals if they must be
	// in the state that opens the gate for some time. Nil if nothing has to be
	// remembered. Must be passed back in Facts.Steady.
	Steady *Steady
	// Overdue is true while the gate is closed and its deadline has passed.
	Overdue bool
	// Due is the time at which the closed gate's deadline passes if its readings do not
	// change. Zero if the deadline has passed or does not apply, and while the node is
	// unreachable, because the clock is stopped.
	Due time.Time
	// PassedDeadline is true if the deadline passes by this decision.
	PassedDeadline bool
	// WasPublished and Published report whether the node has the gate's condition (see
	// Deadline.Publish), before and after this decision.
	WasPublished, Published bool
	// BornTainted is true if the node is new to the gate and carries its taint already, for
	// example because the kubelet registered with it.
	BornTainted bool
	// Contended is true while another writer repeatedly reverts the gate's taint.
	Contended bool
	// Ring lists the gates, including this one, that would open and close each other on
	// this node endlessly and therefore keep their state. Empty if there are none.
	Ring string
	// Overridden describes a manual override of the gate on this node that is in effect
	// or ends by this decision. Nil if there is none.
	Overridden *Overridden
	// Held is true if the record is kept only because it is unknown whether its gate
	// still exists, or because its taint must not be changed.
	Held bool
	// staysInBoot is true if the gate stays open, and its record changes to the node's boot,
	// because its signals hold in it.
	staysInBoot bool
	// DryRun is true for a gate in dry run that has no record on the node. The verdict
	// then describes what the gate would do. It is not applied and must not be reported
	// as applied.
	DryRun bool
	// Shadow is the record that a gate in dry run would have on the node. Must be
	// passed back in Facts.Shadow.
	Shadow string
}

// Opened reports whether the gate opens by this decision.
func (v *Verdict) Opened() bool {
	return v.Before != v1alpha1.StateOpen && v.After == v1alpha1.StateOpen ||
		v.Before == v1alpha1.StateClosed && v.After == ""
}

// Closed reports whether the gate closes by this decision.
func (v *Verdict) Closed() bool {
	return v.Before != v1alpha1.StateClosed && v.After == v1alpha1.StateClosed
}

// WasNeverOpen reports whether the gate closes on a new node that carries its taint already. The
// decision then only records that.
func (v *Verdict) WasNeverOpen() bool {
	return v.Closed() && v.BornTainted && v.Reason == v1alpha1.ReasonBirth
}

// Opens reports whether a gate opens because of its signals, or would without an
// override, or stays open in a new boot because of them. The write of such a decision is
// valid only for the boot that the decision is based on.
func (d *Decision) Opens() bool {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		o := v.Overridden
		own := o != nil && o.Own == v1alpha1.StateOpen && !o.isKept()
		if !v.DryRun && (own || v.staysInBoot || v.Opened() && v.After == v1alpha1.StateOpen) {
			return true
		}
	}
	return false
}

// Waiting returns the index of the first signal that the gate waits for while it is closed,
// in the gate's order, or -1 (see State.IsAwaited).
func (v *Verdict) Waiting(closeWhen bool) int {
	all := v.signals()
	return slices.IndexFunc(v.Readings, func(r Reading) bool { return r.State.IsAwaited(closeWhen, all) })
}

// TaintOn returns the taint that the gate has on the node after the decision, or would add to it,
// in the form used in records, or "". g is nil for a gate that does not exist. If the gate is
// closed, and only the taint that is on the node now keeps pods off, it returns that one, which
// stays until the decision is written.
func (v *Verdict) TaintOn(n *Node, d *Decision, g *Gate) (text string) {
	if g != nil {
		text = TaintText(g.Taint)
	}
	if r, err := ParseRecord(cmp.Or(d.Records[v.Gate], v.Shadow, n.Records[v.Gate])); err == nil && r.Taint != "" {
		text = r.Taint
	}
	now, _ := ParseRecord(n.Records[v.Gate])
	if v.Before == v1alpha1.StateClosed && !v.DryRun && now.Taint != "" && !IsSoft(now.Taint) && IsSoft(text) {
		return now.Taint
	}
	return text
}

// LacksTaint reports whether the gate is closed by its record while its taint is not on the node,
// because another writer has removed it.
func (v *Verdict) LacksTaint(n *Node) bool {
	r, err := ParseRecord(n.Records[v.Gate])
	t, ok := parseTaint(r.Taint)
	return err == nil && ok && v.Before == v1alpha1.StateClosed && !v.DryRun && n.taint(t.Key, t.Effect) < 0
}

// TaintLeft returns the gate's taint that is on the node and that the decision removes, in the form used in
// records, although the gate is not closed by its record, or has none: the record did not fit into the Node, or
// another writer added the taint. Until it is removed, it keeps pods off the node. Otherwise TaintLeft returns
// "". g is nil for a gate that does not exist.
func (v *Verdict) TaintLeft(n *Node, d *Decision, g *Gate) string {
	if g == nil || v.Before == v1alpha1.StateClosed || v.After == v1alpha1.StateClosed || !d.Changes {
		return ""
	}
	for _, t := range g.Taints() {
		its := t.Core()
		if n.taint(t.Key, t.Effect) >= 0 && !slices.ContainsFunc(d.Taints, func(stays corev1.Taint) bool { return stays.MatchTaint(&its) }) {
			return TaintText(t)
		}
	}
	return ""
}

// IsSoft reports whether a taint, in the form used in records, does not keep pods off a node.
func IsSoft(taint string) bool {
	return strings.HasSuffix(taint, ":"+string(corev1.TaintEffectPreferNoSchedule))
}

// signals returns the combined state of the gate's signals.
func (v *Verdict) signals() State {
	all := Holds
	for i := range v.Readings {
		all = all.And(v.Readings[i].State)
	}
	return all
}

// Obstacle returns Blocked as a reading, with the time until which it applies, or with
// what the group lacks.
func (v *Verdict) Obstacle() Reading {
	if v.Group != nil && v.Blocked != "" && v.Blocked == v.Group.lacks {
		return v.Group.Reading()
	}
	r := Reading{Reason: v.Blocked}
	if !v.BlockedUntil.IsZero() {
		r.Subject = v.BlockedUntil.UTC().Add(time.Second - 1).Format(time.RFC3339)
	}
	return r
}
