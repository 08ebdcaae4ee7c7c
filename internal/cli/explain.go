// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
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
	Gates []GateExplanation `json:"gates"`
	// IgnoredOverrides contains, by gate name, the reasons why overrides on the node
	// have no effect.
	IgnoredOverrides map[string]string `json:"ignoredOverrides,omitempty"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
}

// StateNone is the state of a gate if the node is not a member of it.
const StateNone = "None"

// GateExplanation explains the state of a gate on the node. For a gate in DryRun that
// holds nothing there, all fields describe what would happen if its mode were
// switched to Enforce now.
type GateExplanation struct {
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
	// CloseWhen is true if the gate is closed while its signals hold, and false if it is
	// closed until they hold.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// Signals are the gate's signals in the order of its spec. Empty if the state does
	// not depend on them.
	Signals []SignalExplanation `json:"signals,omitempty"`
	// Obstacle is the reason why no signal can open the gate at present.
	Obstacle *Obstacle `json:"obstacle,omitempty"`
	// ClosesBy is the latest time at which the open gate closes unless its signals hold
	// again.
	ClosesBy time.Time `json:"closesBy,omitzero"`
	// Deadline is the time at which the gate's deadline passes unless its signals
	// change. Overdue is true if it has passed.
	Deadline time.Time `json:"deadline,omitzero"`
	Overdue  bool      `json:"overdue,omitempty"`
	// Override is the manual override of the gate on this node.
	Override *Override `json:"override,omitempty"`
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
	// Next is what happens next or what to do.
	Next string `json:"next,omitempty"`
}

// SignalExplanation is the reading of a signal.
type SignalExplanation struct {
	Name string `json:"name"`
	// State is Holds, NotYet or Unknown.
	State   string                 `json:"state"`
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	// Since is the time at which the signal changed to this state, if the API has it.
	Since time.Time `json:"since,omitzero"`
}

// Obstacle is the reason why no signal can open a gate at present.
type Obstacle struct {
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	// Until is the latest time at which the obstacle ends. Zero if it does not end by
	// time.
	Until time.Time `json:"until,omitzero"`
}

// Override is a manual override of a gate on a node.
type Override struct {
	// State is Open or Closed.
	State  string    `json:"state"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	// Own is the gate's state without the override, and OwnReason the reason for it.
	Own       string          `json:"own"`
	OwnReason v1alpha1.Reason `json:"ownReason,omitempty"`
	// HeldBy is the name of another gate that keeps the taint on the node.
	HeldBy string `json:"heldBy,omitempty"`
}

// explain converts the decision to an explanation.
func (s *snapshot) explain() *Explanation {
	n := &s.facts.Node
	e := &Explanation{
		Node: n.Name, Time: s.now.UTC(), Gates: []GateExplanation{},
		OptOutLabel:      gate.OptOut(n.Labels, s.plainOptOut),
		IgnoredOverrides: s.decision.Ignored,
	}
	if e.OptedOut = e.OptOutLabel != ""; !e.OptedOut {
		e.IgnoredOptOutLabel = gate.OptOut(n.Labels, true)
	}
	for i := range s.decision.Verdicts {
		g := s.explainGate(&s.decision.Verdicts[i])
		e.Gates = append(e.Gates, g)
		e.Held = e.Held || g.holds()
	}
	slices.SortStableFunc(e.Gates, func(a, b GateExplanation) int { return cmp.Compare(a.rank(), b.rank()) })
	for i := range s.gaps {
		e.Unread = append(e.Unread, s.gaps[i].Err.Error())
	}
	return e
}

// holds reports whether the gate holds the node or is about to.
func (e *GateExplanation) holds() bool {
	return !e.DryRun && (e.State == v1alpha1.StateClosed || e.Becomes == v1alpha1.StateClosed)
}

// rank is the gate's position: gates that hold the node come first, then gates that
// would.
func (e *GateExplanation) rank() int {
	switch {
	case e.holds():
		return 0
	case e.State == v1alpha1.StateClosed:
		return 1
	case e.State == StateNone:
		return 3
	}
	return 2
}

func (s *snapshot) explainGate(v *gate.Verdict) GateExplanation {
	g := s.gate(v.Gate)
	e := GateExplanation{
		Gate: v.Gate, Unknown: g == nil, DryRun: v.DryRun, State: cmp.Or(v.Before, StateNone),
		Reason: v.Reason, Since: v.Since.UTC(), Taint: s.taint(v, g),
		Deadline: v.Due.UTC(), Overdue: v.Overdue, Throttled: v.Wants == gate.WantBudget, Contended: v.Contended,
		NotInForce: s.rejected[v.Gate], NonMember: v.NonMember, Ring: v.Ring,
	}
	switch after := cmp.Or(v.After, StateNone); {
	case v.DryRun:
		e.State, e.Since = after, time.Time{}
	case after != e.State:
		e.Becomes, e.Since = after, v.ClosedSince.UTC()
	case e.Since.IsZero() && e.State == v1alpha1.StateClosed: // closed by the API server, which does not record the time
		e.Since = s.facts.Node.Created.UTC()
	}
	if g != nil {
		e.CloseWhen = g.CloseWhen
		e.Signals = s.explainSignals(v, g)
		e.ClosesBy = closesBy(v, g)
	}
	if v.Blocked != "" {
		e.Obstacle = &Obstacle{Reason: v.Blocked, Message: v.Obstacle().Message(), Until: v.BlockedUntil.UTC()}
		if v.Blocked == v1alpha1.ReadingOpenAfter {
			e.Obstacle.Message += ", or earlier if the controller observed the signals' change earlier than the API shows"
		}
	}
	if o := v.Overridden; o != nil && o.State != "" {
		e.Override = &Override{
			State: o.State, Until: o.Until.UTC(), Reason: o.Because,
			Own: cmp.Or(o.Own, StateNone), OwnReason: o.OwnReason, HeldBy: o.HeldBy,
		}
	}
	if e.Next = s.nextStep(v, g, &e); e.Unknown && s.hasUnreadableRecord(v.Gate) {
		e.State, e.Reason, e.Since = StateNone, "", time.Time{} // the record's content is unknown
	}
	return e
}

// hasUnreadableRecord reports whether a gate's record on the node cannot be parsed.
func (s *snapshot) hasUnreadableRecord(name string) bool {
	_, err := gate.ParseRecord(s.facts.Node.Records[name])
	return err != nil
}

// taint returns the taint that the gate has on the node, or would add to it.
func (s *snapshot) taint(v *gate.Verdict, g *gate.Gate) string {
	raw := cmp.Or(s.decision.Records[v.Gate], v.Shadow, s.facts.Node.Records[v.Gate])
	if r, err := gate.ParseRecord(raw); err == nil && r.Taint != "" {
		return r.Taint
	}
	if g == nil {
		return ""
	}
	return gate.TaintText(g.Taint)
}

func (s *snapshot) explainSignals(v *gate.Verdict, g *gate.Gate) []SignalExplanation {
	var all []SignalExplanation
	for i, r := range v.Readings {
		message := r.Message()
		if r.Unseen() {
			if r.Reason == v1alpha1.ReadingNotObserved {
				message = r.Subject + " is unknown"
			}
			needed := g.Signals[i].Needs(s.facts.DaemonSets)
			for j := range s.gaps {
				if s.gaps[j].Hides(needed) {
					message += ": " + s.gaps[j].Err.Error()
				}
			}
		}
		all = append(all, SignalExplanation{
			Name: g.Signals[i].Name, State: r.State.String(), Reason: r.Reason, Message: message, Since: r.Since.UTC(),
		})
	}
	return all
}

// closesBy returns the time at which an open gate closes because its signals do not
// hold. The gate may close earlier, because the controller may have observed the
// change of the signals earlier than the API shows.
func closesBy(v *gate.Verdict, g *gate.Gate) time.Time {
	var due time.Time
	for _, wait := range []struct {
		since time.Time
		lasts time.Duration
	}{{v.LostSince, g.CloseAfter}, {v.RolloutSince, g.RolloutGrace}} {
		if at := wait.since.Add(wait.lasts).UTC(); !wait.since.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// nextStep returns what happens next or what to do.
func (s *snapshot) nextStep(v *gate.Verdict, g *gate.Gate, e *GateExplanation) string {
	switch {
	case g == nil:
		return s.orphanedRecordMessage(v)
	case e.Becomes != "":
		return "the controller does this immediately; if the state does not change, check whether the controller is running"
	case v.Wants != "":
		return wantMessages[v.Wants]
	case !v.Leaves.IsZero():
		return "the gate no longer selects the node: the controller removes the gate's taint and record, unless the gate selects the node again within 30 seconds"
	case v.NonMember != "" && e.NotInForce == "":
		return gate.NonMemberMessage(v.NonMember)
	case e.State != v1alpha1.StateClosed:
		return ""
	case v.Blocked != "":
		return s.expand(nextSteps[v.Blocked], e)
	}
	for i, r := range v.Readings {
		switch {
		case r.Unseen() && len(s.gaps) > 0:
			return "the controller may be able to read what is unknown here: get permission to read it, and retry"
		case g.CloseWhen == (r.State == gate.Holds):
			return s.expand(nextSteps[v.Readings[i].Reason], e)
		}
	}
	return ""
}

// expand replaces the placeholders in a text by names.
func (s *snapshot) expand(text string, e *GateExplanation) string {
	key, _, _ := strings.Cut(e.Taint, ":")
	key, _, _ = strings.Cut(key, "=")
	return strings.NewReplacer("<node>", s.facts.Node.Name, "<gate>", e.Gate, "<key>", key).Replace(text)
}

// wantMessages explains what a gate waits for.
var wantMessages = map[gate.Want]string{
	gate.WantBudget: "the node stays open until the gate's budget.maxReclosed allows another node of its zone to be closed",
	gate.WantPace:   "the node is queued to become a member, open: existing nodes are adopted at a limited rate",
	gate.WantPods:   "it is unknown whether the node is idle: all of its pods must be checked first (existingNodes: CloseIfIdle)",
	gate.WantIdle:   "the node is not idle, and stays open until it is (existingNodes: CloseIfIdle)",
}

// orphanedRecordMessage explains what happens to a record whose gate is not among the
// NodeGates.
func (s *snapshot) orphanedRecordMessage(v *gate.Verdict) string {
	r, err := gate.ParseRecord(s.facts.Node.Records[v.Gate])
	switch {
	case err != nil:
		return fmt.Sprintf("the NodeGate does not exist, and the record cannot be read (%v): the controller removes the record when no taint on the node can belong to it", err)
	case r.Source == v1alpha1.SourceFiles:
		return "the gate is declared in a file that only the controller reads (--gates)"
	default:
		return "the NodeGate does not exist: the controller removes its taint and record within minutes, as soon as it is certain that the NodeGate was deleted"
	}
}
