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

// Explanation is what 'kubectl gate why' has found out about a node, and what it
// prints with -o json and -o yaml. Fields are added, and neither renamed nor given
// another meaning.
type Explanation struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Time is when it was decided.
	Time time.Time `json:"time"`
	// Held tells whether a gate holds the node, or is just about to.
	Held bool `json:"held"`
	// OptedOut tells whether the node is out of all gates by its label.
	OptedOut bool `json:"optedOut,omitempty"`
	// Gates are all that concern the node: those that hold it first, then by name.
	Gates []GateExplanation `json:"gates"`
	// IgnoredOverrides says of overrides on the node that are not followed, by gate,
	// why.
	IgnoredOverrides map[string]string `json:"ignoredOverrides,omitempty"`
	// Unread says what could not be read, so that it is not known.
	Unread []string `json:"unread,omitempty"`
}

// StateNone is the state of a gate of which the node is no member.
const StateNone = "None"

// GateExplanation is how one gate stands on the node. Of a gate in DryRun that
// holds nothing there, all of it is what would be if it were switched to Enforce
// now.
type GateExplanation struct {
	// Gate is the gate's name.
	Gate string `json:"gate"`
	// Unknown tells that there is no such NodeGate, only a record on the node.
	Unknown bool `json:"unknown,omitempty"`
	// DryRun tells that all this is what would be.
	DryRun bool `json:"dryRun,omitempty"`
	// State is Closed, Open or None.
	State string `json:"state"`
	// Becomes is the state that the gate is about to come into; missing if none.
	Becomes string `json:"becomes,omitempty"`
	// Reason says why the gate is in its state, or is about to leave it.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Since is when the gate came into its state.
	Since time.Time `json:"since,omitzero"`
	// Taint is what the gate puts on the node while it is closed.
	Taint string `json:"taint,omitempty"`
	// CloseWhen tells that the gate is closed while its signals hold, rather than
	// until they do.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// Signals are the gate's, in its order; missing where nothing depends on them.
	Signals []SignalExplanation `json:"signals,omitempty"`
	// Obstacle is why no signal can open the gate at present.
	Obstacle *Obstacle `json:"obstacle,omitempty"`
	// ClosesBy is when the open gate closes, at the latest, unless its signals hold
	// again.
	ClosesBy time.Time `json:"closesBy,omitzero"`
	// Deadline is when the gate's deadline passes if its signals go on saying what
	// they say, and Overdue tells that it has passed.
	Deadline time.Time `json:"deadline,omitzero"`
	Overdue  bool      `json:"overdue,omitempty"`
	// Override is a person's word for the gate on this node.
	Override *Override `json:"override,omitempty"`
	// Throttled tells that closing waits for budget.
	Throttled bool `json:"throttled,omitempty"`
	// Contended tells that another writer keeps undoing the gate's taint.
	Contended bool `json:"contended,omitempty"`
	// NotInForce says why the gate is not in force; missing if it is.
	NotInForce string `json:"notInForce,omitempty"`
	// Next says what comes next, or what to do.
	Next string `json:"next,omitempty"`
}

// SignalExplanation is what one signal says.
type SignalExplanation struct {
	Name string `json:"name"`
	// State is Holds, NotYet or Unknown.
	State   string                 `json:"state"`
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	// Since is when the signal came to say so, where the API tells.
	Since time.Time `json:"since,omitzero"`
}

// Obstacle is why no signal can open a gate at present.
type Obstacle struct {
	Reason  v1alpha1.ReadingReason `json:"reason"`
	Message string                 `json:"message"`
	// Until is when that will be over, at the latest. Missing where it is not a
	// matter of time.
	Until time.Time `json:"until,omitzero"`
}

// Override is a person's word for a gate on a node.
type Override struct {
	// State is Open or Closed.
	State  string    `json:"state"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	// Own is what the gate is by itself, and OwnReason why.
	Own       string          `json:"own"`
	OwnReason v1alpha1.Reason `json:"ownReason,omitempty"`
	// HeldBy is another gate that keeps the taint on the node.
	HeldBy string `json:"heldBy,omitempty"`
}

// explain says in full what was decided.
func (s *sight) explain() *Explanation {
	n := &s.facts.Node
	e := &Explanation{
		Node: n.Name, Time: s.now.UTC(), Gates: []GateExplanation{},
		OptedOut:         n.Labels[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue,
		IgnoredOverrides: s.decision.Ignored,
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

// holds tells whether the gate holds the node, or is about to.
func (e *GateExplanation) holds() bool {
	return !e.DryRun && (e.State == v1alpha1.StateClosed || e.Becomes == v1alpha1.StateClosed)
}

// rank is the gate's place: what holds the node comes first, then what would.
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

func (s *sight) explainGate(v *gate.Verdict) GateExplanation {
	g := s.gate(v.Gate)
	e := GateExplanation{
		Gate: v.Gate, Unknown: g == nil, DryRun: v.DryRun, State: cmp.Or(v.Before, StateNone),
		Reason: v.Reason, Since: v.Since.UTC(), Taint: s.taint(v, g),
		Deadline: v.Due.UTC(), Overdue: v.Overdue, Throttled: v.Wants == gate.WantBudget, Contended: v.Contended,
		NotInForce: s.refused[v.Gate],
	}
	switch after := cmp.Or(v.After, StateNone); {
	case v.DryRun:
		e.State, e.Since = after, time.Time{}
	case after != e.State:
		e.Becomes, e.Since = after, v.ClosedSince.UTC()
	case e.Since.IsZero() && e.State == v1alpha1.StateClosed: // closed by the API server, which has no clock
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
			e.Obstacle.Message += ", or sooner if the controller has seen them begin"
		}
	}
	if o := v.Overridden; o != nil && o.State != "" {
		e.Override = &Override{
			State: o.State, Until: o.Until.UTC(), Reason: o.Because,
			Own: cmp.Or(o.Own, StateNone), OwnReason: o.OwnReason, HeldBy: o.HeldBy,
		}
	}
	if e.Next = s.next(v, g, &e); e.Unknown && s.garbled(v.Gate) {
		e.State, e.Reason, e.Since = StateNone, "", time.Time{} // nobody knows what it says
	}
	return e
}

// garbled tells whether a gate's record cannot be read.
func (s *sight) garbled(name string) bool {
	_, err := gate.ParseRecord(s.facts.Node.Records[name])
	return err != nil
}

// taint is what the gate has on the node, or would put there.
func (s *sight) taint(v *gate.Verdict, g *gate.Gate) string {
	raw := cmp.Or(s.decision.Records[v.Gate], v.Shadow, s.facts.Node.Records[v.Gate])
	if r, err := gate.ParseRecord(raw); err == nil && r.Taint != "" {
		return r.Taint
	}
	if g == nil {
		return ""
	}
	return gate.TaintText(g.Taint)
}

func (s *sight) explainSignals(v *gate.Verdict, g *gate.Gate) []SignalExplanation {
	var all []SignalExplanation
	for i, r := range v.Readings {
		message := r.Message()
		if r.Unseen() {
			if r.Reason == v1alpha1.ReadingNotObserved {
				message = r.Subject + " is not known"
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

// closesBy is when an open gate closes whose signals do not hold. The controller
// may have seen them stop earlier than the API tells.
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

// next says what comes next, or what to do.
func (s *sight) next(v *gate.Verdict, g *gate.Gate, e *GateExplanation) string {
	switch {
	case g == nil:
		return s.aboutUnknown(v)
	case e.Becomes != "":
		return "the controller does this at once: if it stays so, see whether the controller runs"
	case v.Wants != "":
		return aboutWant[v.Wants]
	case e.State == StateNone && e.NotInForce == "":
		return outside(g)
	case e.State != v1alpha1.StateClosed:
		return ""
	case v.Blocked != "":
		return s.fill(todo[v.Blocked], e)
	}
	for i, r := range v.Readings {
		switch {
		case r.Unseen() && len(s.gaps) > 0:
			return "what is not known may be known to the controller: get the right to read it, and ask again"
		case g.CloseWhen == (r.State == gate.Holds):
			return s.fill(todo[v.Readings[i].Reason], e)
		}
	}
	return ""
}

// fill puts names in the place of placeholders.
func (s *sight) fill(text string, e *GateExplanation) string {
	key, _, _ := strings.Cut(e.Taint, ":")
	key, _, _ = strings.Cut(key, "=")
	return strings.NewReplacer("<node>", s.facts.Node.Name, "<gate>", e.Gate, "<key>", key).Replace(text)
}

// aboutWant says what a gate that wants something waits for.
var aboutWant = map[gate.Want]string{
	gate.WantBudget: "the node stays open until the gate's budget.maxReclosed lets another one of its zone be closed",
	gate.WantPace:   "the node becomes a member, open, when its turn comes: existing nodes are taken in at a modest rate",
	gate.WantPods:   "whether the node is idle is not known: all of its pods have to be looked at first (existingNodes: CloseIfIdle)",
	gate.WantIdle:   "the node is not idle, and stays open until it is (existingNodes: CloseIfIdle)",
}

// outside says why a node that the gate selects is no member.
func outside(g *gate.Gate) string {
	if g.Mode == v1alpha1.ModePaused {
		return "the gate is paused, and takes in no node (mode)"
	}
	if g.Existing == v1alpha1.ExistingIgnore && !g.CloseWhen {
		return "the node was there before the gate, or came to it later, and is left alone (existingNodes: Ignore)"
	}
	return ""
}

// aboutUnknown says what becomes of a record whose gate is not among the
// NodeGates.
func (s *sight) aboutUnknown(v *gate.Verdict) string {
	r, err := gate.ParseRecord(s.facts.Node.Records[v.Gate])
	switch {
	case err != nil:
		return fmt.Sprintf("there is no such NodeGate, and the record cannot be read (%v): the controller removes it when no taint may be from it", err)
	case r.Source == v1alpha1.SourceFiles:
		return "the gate is declared in a file of the controller (--gates), which is not seen from here"
	default:
		return "there is no such NodeGate: the controller lets go of the node as soon as it is certain that the gate was deleted, within minutes"
	}
}
