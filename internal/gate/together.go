// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Groups.
//
// The nodes of a rack or of an accelerator slice are useful only together. A gate with
// openTogether opens on a node only when enough nodes of its group are fit. A decision
// about one node does not know the other nodes. What is known about them is a fact
// (Facts.Groups), and whether the node itself is fit is part of its verdict
// (Verdict.Fit), from which the controller computes that fact for the others.
//
// Whether a node is fit depends only on its own facts, not on whether others are fit. The
// order in which nodes are decided therefore does not matter, and fitness is derived from
// the facts again after a restart:
//
//	the node                                         is fit
//	a manual override opens or closes the gate       if it opens the gate
//	the gate is closed                               if it would open apart from the group
//	the gate is open because its deadline passed     if its signals hold
//	the gate is open for any other reason            yes
//	is not a member of the gate                      yes: the gate keeps no pods off it
//
// The last two rows mean that a node with a regressed signal counts until the gate closes
// on it. The group is then incomplete only where pods cannot run.
//
// A group that is incomplete keeps the gate closed, but does not close it, unless
// closeTogether requires that. It then closes like a gate with a regressed signal: after
// CloseAfter, and under the budget. The deadline applies to a node that waits for its
// group as to any other. A node that it opened is not closed for its group until the
// group has been complete once.
//
// A node without the label, or a group whose size is unknown, keeps its state: the gate
// neither opens nor closes because of its group. The size is the largest that a node declares,
// so it is unknown until all nodes have been decided.

// groupMax is the maximum size of a group that a label can declare.
const groupMax = 5000

// groupRecheck is how soon a decision is repeated that depends on nodes of the group that
// have not been decided yet.
const groupRecheck = time.Second

// Together is the compiled openTogether of a gate.
type Together struct {
	// LabelKey is the key of the label whose value is the name of the node's group.
	// SizeLabelKey is the key of the label whose value is the size of the group. It is
	// empty if AtLeast is a number.
	LabelKey, SizeLabelKey string
	// AtLeast is the number or percentage of nodes that must be fit.
	AtLeast intstr.IntOrString
	// Closes is true if the gate closes on the rest of an incomplete group.
	Closes bool
}

// Name returns the name of the group of a node with these labels, or "".
func (t *Together) Name(l labels.Set) string { return l[t.LabelKey] }

// DeclaredSize returns the size of the group that a node with these labels declares, or
// zero if it declares none.
func (t *Together) DeclaredSize(l labels.Set) int {
	n, err := strconv.Atoi(l[t.SizeLabelKey])
	if t.SizeLabelKey == "" || err != nil || n < 1 || n > groupMax {
		return 0
	}
	return n
}

// Needed returns how many nodes of a group must be fit, given the largest size that its
// nodes declare. It is zero if that is not known.
func (t *Together) Needed(size int) int {
	if t.AtLeast.Type == intstr.Int {
		return t.AtLeast.IntValue()
	}
	if size == 0 {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&t.AtLeast, size, true)
	if err != nil { // the schema rejects it
		return 0
	}
	return max(n, 1)
}

// GroupWait is the time since which the group of an open node has been incomplete. Since is
// zero while it is complete. Another group of the node starts another wait.
type GroupWait struct {
	Group string
	Since time.Time
}

// Group is what is known about the other nodes of a node's group. The zero value means
// that nothing is known.
type Group struct {
	// Fit is the number of the other nodes that are fit (see Verdict.Fit).
	Fit int
	// Size is the largest size of the group that one of the other nodes declares, or
	// zero.
	Size int
	// Unfit contains the names of the first other nodes that are not fit, sorted, and
	// UnfitCount is the number of all of them.
	Unfit      []string
	UnfitCount int
	// Known is true if all nodes of the gate have been decided. Otherwise, there may be
	// further nodes, whose fitness is unknown.
	Known bool
}

// GroupMember is a node of a group.
type GroupMember struct {
	// Size is the size of the group that the node declares, or zero.
	Size int
	// Fit reports whether the node is fit. Waits reports whether it is closed only
	// because of its group.
	Fit, Waits bool
}

// groupNames is the number of nodes that a Group names.
const groupNames = 3

// Member returns a node as a member of its group, given the verdict about the gate.
func (t *Together) Member(l labels.Set, v *Verdict) GroupMember {
	return GroupMember{Size: t.DeclaredSize(l), Fit: v.Fit, Waits: v.Fit && v.After == v1alpha1.StateClosed}
}

// GroupState is the state of a node's group as the node sees it.
type GroupState struct {
	// Name is the name of the group. Empty if the node does not have the label.
	Name string
	// Fit is the number of nodes that are fit or, apart from their group, would be,
	// including this node if it is.
	Fit int
	// Needed is the number of nodes that must be fit. Zero if the group's size is
	// unknown. Nodes is the number of nodes that are known, including this node.
	Needed, Nodes int
	// Unfit and UnfitCount are those of Group.
	Unfit      []string
	UnfitCount int
	// Known is that of Group.
	Known bool
	// lacks is the reason why the group does not open the gate, or "". key is the key of
	// the label that is missing.
	lacks v1alpha1.ReadingReason
	key   string
}

// Complete reports whether enough nodes of the group are fit.
func (s *GroupState) Complete() bool { return s.lacks == "" }

// Reading returns the reason why the group does not open the gate as a reading.
func (s *GroupState) Reading() Reading {
	switch {
	case s.Complete():
		return Reading{}
	case s.lacks == v1alpha1.ReadingGroupIncomplete:
		return Reading{Reason: s.lacks, Subject: s.String()}
	}
	return Reading{Reason: s.lacks, Subject: s.key}
}

// String describes the group.
func (s *GroupState) String() string {
	text := fmt.Sprintf("group %s has %d fit nodes and needs %d", s.Name, s.Fit, s.Needed)
	if s.Fit == 1 {
		text = fmt.Sprintf("group %s has 1 fit node and needs %d", s.Name, s.Needed)
	}
	if s.UnfitCount > 0 {
		text += "; not fit: " + FirstNames(s.Unfit, s.UnfitCount)
	}
	switch {
	case !s.Known:
		text += "; not all of its nodes are known"
	case s.Needed > s.Nodes:
		text += fmt.Sprintf("; nodes that have not joined the group: %d", s.Needed-s.Nodes)
	}
	return text
}

// group returns the state of the node's group, given whether the node itself is fit.
func (d *decider) group(g *Gate, fit bool) *GroupState {
	t, others := g.Together, d.Groups[g.Name]
	size := max(others.Size, t.DeclaredSize(d.Node.Labels))
	s := &GroupState{
		Name: t.Name(d.Node.Labels), Fit: others.Fit, Needed: t.Needed(size), Nodes: others.Fit + others.UnfitCount + 1,
		Unfit: others.Unfit, UnfitCount: others.UnfitCount, Known: others.Known,
	}
	if fit {
		s.Fit++
	}
	switch {
	case s.Name == "":
		s.lacks, s.key = v1alpha1.ReadingGroupUnknown, t.LabelKey
	case t.SizeLabelKey != "" && !others.Known: // a node that has not been decided may declare a size, or a larger one
		s.lacks, s.key = v1alpha1.ReadingNotObserved, "the size of group "+s.Name
	case s.Needed == 0:
		s.lacks, s.key = v1alpha1.ReadingGroupSizeUnknown, t.SizeLabelKey
	case s.Fit < s.Needed:
		s.lacks = v1alpha1.ReadingGroupIncomplete
	}
	return s
}

// groupOpens reports whether the group of a node that is fit itself opens the gate on it.
// If not, the verdict has the reason.
func (d *decider) groupOpens(s *slot) bool {
	t := s.gate.Together
	if t == nil {
		return true
	}
	s.fit = true
	if s.after.sameBootAsDigest(&d.Node) && !t.Closes {
		return true // the node has returned unchanged
	}
	group := d.group(s.gate, s.mask != v1alpha1.StateClosed)
	if group.Complete() {
		return true
	}
	if s.verdict.Blocked = group.lacks; group.lacks == v1alpha1.ReadingNotObserved {
		d.recheckAt(d.now.Add(groupRecheck))
	}
	return false
}

// groupLost returns ReasonGroupIncomplete if an open gate closes because its group has
// been incomplete for long enough, and "" otherwise. Nodes that have not been decided yet
// neither start nor stop the wait.
func (d *decider) groupLost(s *slot) v1alpha1.Reason {
	g, r, v := s.gate, s.after, s.verdict
	if t := g.Together; t == nil || !t.Closes || g.Reclose == v1alpha1.RecloseNever || r.Reason == v1alpha1.ReasonDeadlinePassed {
		return ""
	}
	wait := d.GroupWaits[g.Name]
	group, known := d.group(g, s.mask != v1alpha1.StateClosed), d.Groups[g.Name].Known
	if group.Name != "" && group.Name != wait.Group {
		wait = GroupWait{Group: group.Name}
	}
	switch uncertain := d.Node.Silent() || d.Node.ShuttingDown || d.hasBooted(r) || v.Wants != ""; {
	case group.Complete():
		return ""
	case !known, group.lacks != v1alpha1.ReadingGroupIncomplete, uncertain:
		if v.GroupWait = wait; !known {
			d.recheckAt(d.now.Add(groupRecheck))
		}
		return ""
	}
	wait.Since = Earliest(wait.Since, d.now)
	v.GroupWait = wait
	return d.closesUnderBudget(s, wait.Since.Add(g.CloseAfter), v1alpha1.ReasonGroupIncomplete)
}

// setFit completes the verdict about a gate that opens together: whether the node is fit,
// and the state of its group.
func (d *decider) setFit(s *slot) {
	if s.gate == nil || s.gate.Together == nil || !s.selected {
		return
	}
	if s.gate.Mode == v1alpha1.ModeDryRun && !d.acts(s.gate) { // the dry run starts with the next decision
		return
	}
	v := s.verdict
	lapsed := s.after != nil && s.after.Reason == v1alpha1.ReasonDeadlinePassed
	switch {
	case s.mask != "":
		v.Fit = s.mask == v1alpha1.StateOpen
	case v.After == v1alpha1.StateClosed, lapsed:
		v.Fit = s.fit
	default:
		v.Fit = true
	}
	v.Group = d.group(s.gate, v.Fit)
}
