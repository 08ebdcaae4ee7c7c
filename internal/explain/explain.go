// SPDX-License-Identifier: Apache-2.0

// Package explain explains a decision about a node: which gates hold it, since when, what
// they wait for, what keeps them from opening, and what to do next. It does no I/O.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Facts are what an explanation is based on.
type Facts struct {
	Gates *gateset.Set
	// Node contains the facts from which the decision was made.
	Node     gate.Facts
	Decision gate.Decision
	// ReadErrors are the errors of reading the facts.
	ReadErrors []ReadError
	// Now is the time of the decision.
	Now time.Time
}

// ReadError is an error of reading facts.
type ReadError struct {
	Message string
	// Hides reports whether the error affects signals with these needs.
	Hides func(gate.Needs) bool
}

// Of returns the explanation of a decision.
func Of(f *Facts) *Explanation {
	n := &f.Node.Node
	e := &Explanation{
		Node: n.Name, Time: f.Now.UTC(), Gates: []Gate{},
		OptOutLabel:      gate.OptOut(n.Labels, f.Gates.PlainOptOut),
		IgnoredOverrides: f.ignoredOverrides(),
	}
	if e.OptedOut = e.OptOutLabel != ""; !e.OptedOut {
		e.IgnoredOptOutLabel = gate.OptOut(n.Labels, true)
	}
	partitioned := f.decideInPartition()
	for i := range f.Decision.Verdicts {
		v, unlessPartitioned := &f.Decision.Verdicts[i], false
		if in := partitioned.Verdict(v.Gate); in != nil && v.Closed() && !in.Closed() && !v.DryRun {
			v, unlessPartitioned = in, true
		}
		g := f.explainGate(v)
		if unlessPartitioned {
			g.Next = closesUnlessPartitioned
		}
		e.Gates = append(e.Gates, g)
		e.Held = e.Held || g.holds()
		e.Incomplete = e.Incomplete || unlessPartitioned && !g.Soft || f.mayClose(v)
	}
	e.Incomplete = e.Incomplete && !e.Held
	slices.SortStableFunc(e.Gates, func(a, b Gate) int { return cmp.Compare(a.rank(), b.rank()) })
	for i := range f.ReadErrors {
		e.Unread = append(e.Unread, f.ReadErrors[i].Message)
	}
	return e
}

// closesUnlessPartitioned is the next step of a gate that closes if the node's zone, which could
// not be read, is not partitioned.
const closesUnlessPartitioned = "the gate is about to close unless most nodes of the node's zone are unreachable, which is unknown: get permission to list nodes, and retry"

// decideInPartition returns the decision for the case that most nodes of the node's zone are
// unreachable, if it is unknown whether they are. Otherwise it returns an empty decision.
func (f *Facts) decideInPartition() *gate.Decision {
	if len(f.ReadErrors) == 0 || f.Node.Zone.Nodes > 0 || !f.Node.Node.Silent() {
		return &gate.Decision{}
	}
	facts := f.Node
	facts.Zone = gate.Zone{Nodes: 100, Silent: 100}
	d := f.Gates.Decide(&facts, f.Now)
	return &d
}

// holds reports whether the gate keeps pods off the node or is about to.
func (e *Gate) holds() bool {
	return !e.DryRun && !e.Soft && (e.State == v1alpha1.StateClosed || e.Becomes == v1alpha1.StateClosed)
}

// mayClose reports whether a gate that is not closed may be about to close, because something could
// not be read.
func (f *Facts) mayClose(v *gate.Verdict) bool {
	g, _ := f.Gates.Gate(v.Gate)
	overridden := v.Overridden != nil && v.Overridden.State != ""
	if len(f.ReadErrors) == 0 || g == nil || !holdsNodes(g) || !g.Accepted || g.Mode == v1alpha1.ModeDryRun || g.Mode == v1alpha1.ModePaused || overridden {
		return false
	}
	if v.Wants == gate.WantPods || f.closesByGroup(v, g) && !f.Node.Groups[g.Name].Known {
		return true
	}
	return f.closesBySignals(v, g) && slices.ContainsFunc(v.Readings, gate.Reading.Unseen)
}

// holdsNodes reports whether the gate keeps pods off a node on which it closes, or may close again.
func holdsNodes(g *gate.Gate) bool {
	return slices.ContainsFunc(g.Taints(), func(t v1alpha1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
}

// closesByGroup reports whether a gate that is not closed closes if the node's group is incomplete.
func (f *Facts) closesByGroup(v *gate.Verdict, g *gate.Gate) bool {
	return v.NonMember == "" && g.Together != nil && g.Together.Closes && g.Together.Name(f.Node.Node.Labels) != ""
}

// closesBySignals reports whether a gate that is not closed closes if those of its signals that are
// unknown hold, for a closeWhen gate, or do not hold.
func (f *Facts) closesBySignals(v *gate.Verdict, g *gate.Gate) bool {
	n := &f.Node.Node
	switch {
	case g.CloseWhen:
		holdsNot := func(r gate.Reading) bool { return r.State == gate.NotYet }
		return !slices.ContainsFunc(v.Readings, holdsNot) && (g.Taint.Key != v1alpha1.TaintOutOfService || n.Silent())
	case v.NonMember != "":
		return v.NonMember == v1alpha1.NonMemberSignalsUnknown && g.Existing != v1alpha1.ExistingAdopt
	case g.Reclose == v1alpha1.RecloseOnRegression:
		return true
	}
	r, err := gate.ParseRecord(n.Records[g.Name])
	return err == nil && g.Reclose != v1alpha1.RecloseNever && r.Boot != "" && n.BootID != "" && r.Boot != n.BootID
}

// rank is the gate's position: gates that hold the node come first, then gates that
// would.
func (e *Gate) rank() int {
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

func (f *Facts) explainGate(v *gate.Verdict) Gate {
	g, _ := f.Gates.Gate(v.Gate) // nil for a gate that does not exist
	e := Gate{
		Gate: v.Gate, Unknown: g == nil, DryRun: v.DryRun, State: cmp.Or(v.Before, StateNone),
		Reason: v.Reason, Since: v.Since.UTC(), Taint: v.TaintOn(&f.Node.Node, &f.Decision, g),
		Deadline: v.Due.UTC(), Overdue: v.Overdue, Throttled: v.Wants == gate.WantBudget, Contended: v.Contended,
		Condition: conditionOf(v), ConditionThrottled: v.Wants == gate.WantCondition,
		NotInForce: f.Gates.Rejection(v.Gate), NonMember: v.NonMember, Ring: v.Ring,
	}
	left := v.TaintLeft(&f.Node.Node, &f.Decision, g)
	switch after := cmp.Or(v.After, StateNone); {
	case v.DryRun:
		e.State, e.Since = after, time.Time{}
	case left != "":
		e.State, e.Becomes, e.Since, e.Taint = v1alpha1.StateClosed, after, time.Time{}, left
	case after != e.State:
		e.Becomes, e.Since = after, v.ClosedSince.UTC()
	}
	e.Soft, e.TaintMissing = gate.IsSoft(e.Taint), v.LacksTaint(&f.Node.Node)
	if g != nil {
		e.CloseWhen = g.CloseWhen
		e.Signals = f.explainSignals(v, g)
		e.ClosesBy = closesBy(v, g)
		e.Group = explainGroup(v)
	}
	e.Obstacle, e.NotReady = explainObstacle(v), f.notReady(&e)
	e.Override = f.explainOverride(v)
	e.Next = f.nextStep(v, g, &e)
	f.omitUnreadable(&e)
	return e
}

// omitUnreadable removes what is not known of a gate, because its record on the node cannot be
// parsed: the time, and, if the gate does not exist, its state.
func (f *Facts) omitUnreadable(e *Gate) {
	raw, recorded := f.Node.Node.Records[e.Gate]
	if _, err := gate.ParseRecord(raw); err == nil || !recorded {
		return
	}
	if e.Since = (time.Time{}); e.Unknown {
		e.State, e.Becomes, e.Reason = StateNone, "", ""
	}
}

// conditionOf returns the type of the gate's condition, if the node has it.
func conditionOf(v *gate.Verdict) string {
	if !v.WasPublished {
		return ""
	}
	return v1alpha1.DeadlineConditionPrefix + v.Gate
}

func (f *Facts) explainSignals(v *gate.Verdict, g *gate.Gate) []Signal {
	var all []Signal
	for i, r := range v.Readings {
		message := r.SnapshotMessage()
		if r.Unseen() {
			needed := g.Signals[i].Needs(f.Node.DaemonSets)
			for j := range f.ReadErrors {
				if f.ReadErrors[j].Hides(needed) {
					message += ": " + f.ReadErrors[j].Message
				}
			}
		}
		all = append(all, Signal{
			Name: g.Signals[i].Name, State: r.State.String(), Reason: r.Reason, Message: message, Since: r.Since.UTC(),
		})
	}
	return all
}

// explainGroup returns the group of the node, or nil if the gate does not open together.
func explainGroup(v *gate.Verdict) *Group {
	g := v.Group
	if g == nil {
		return nil
	}
	out := &Group{
		Name: g.Name, Fit: g.Fit, Needed: g.Needed, Unfit: g.Unfit, UnfitCount: g.UnfitCount,
		Complete: g.Complete(), Message: g.String(),
	}
	if r := g.Reading(); g.Name == "" || g.Needed == 0 {
		out.Message = r.Message()
	}
	return out
}

// closesBy returns the time at which an open gate closes because its signals do not
// hold. The gate may close earlier, because the controller may have observed the
// change of the signals earlier than the API shows. A gate that waits for budget closes when
// it gets it, and an override keeps the gate's state until it ends.
func closesBy(v *gate.Verdict, g *gate.Gate) time.Time {
	if v.Wants == gate.WantBudget || v.Overridden != nil {
		return time.Time{}
	}
	due := g.RegressesAt(v)
	if since := v.GroupWait.Since; !since.IsZero() {
		due = gate.Earliest(due, since.Add(g.CloseAfter))
	}
	return due.UTC()
}

// nextStep returns what happens next or what to do.
func (f *Facts) nextStep(v *gate.Verdict, g *gate.Gate, e *Gate) string {
	switch {
	case g == nil:
		return f.orphanedRecordMessage(v)
	case e.Becomes != "":
		return becomesStep(e)
	case e.Override != nil && !e.Override.Until.IsZero(): // else the gate keeps its state
		return f.overriddenStep(e)
	case v.Wants != "" && v.Wants != gate.WantCondition: // which does not keep the gate closed
		return wantMessages[v.Wants]
	case !v.Leaves.IsZero():
		return "the gate no longer selects the node: the controller removes the gate's taint and record, unless the gate selects the node again within 30 seconds"
	case v.NonMember != "" && e.NotInForce == "":
		return gate.NonMemberMessage(v.NonMember)
	case e.State != v1alpha1.StateClosed:
		return ""
	case f.isGroupUnread(v):
		return unreadStep
	case v.Blocked != "":
		return f.expand(nextSteps[v.Blocked], e)
	}
	return f.awaitedStep(v, g, e)
}

// overriddenStep returns what to do about an override, which determines the gate's state alone.
func (f *Facts) overriddenStep(e *Gate) string {
	if e.State != v1alpha1.StateClosed {
		return ""
	}
	return f.expand(nextSteps[v1alpha1.ReadingOverridden], e)
}

// awaitedStep returns what to do about the first signal that a closed gate waits for.
func (f *Facts) awaitedStep(v *gate.Verdict, g *gate.Gate, e *Gate) string {
	waiting := v.Waiting(g.CloseWhen)
	for i, r := range v.Readings {
		switch {
		case r.Unseen() && len(f.ReadErrors) > 0:
			return unreadStep
		case i == waiting && r.Reason == v1alpha1.ReadingDiffers && f.isExpression(g, i):
			return f.expand(falseStep, e)
		case i == waiting && r.Reason == v1alpha1.ReadingPodMissing:
			return f.missingPodStep(&r)
		case i == waiting:
			return f.expand(signalStep(g, &r), e)
		}
	}
	return ""
}

// isExpression reports whether a signal of an openWhen gate is an expression, whose message does not
// name what the node lacks.
func (f *Facts) isExpression(g *gate.Gate, signal int) bool {
	ng := f.Gates.Declared[g.Name]
	return ng != nil && signal < len(ng.Spec.OpenWhen) && ng.Spec.OpenWhen[signal].Expression != ""
}

// signalStep returns what to do about a signal that keeps a gate closed.
func signalStep(g *gate.Gate, r *gate.Reading) string {
	switch {
	case g.CloseWhen && r.State == gate.Holds:
		return holdsStep // whatever the reason, such as that a condition is missing (whenMissing: Holds)
	case g.CloseWhen && r.Reason == v1alpha1.ReadingDiffers:
		return unknownStep
	case g.CloseWhen && r.Reason == v1alpha1.ReadingNoneHolds:
		return anyOfUnknownStep
	}
	return nextSteps[r.Reason]
}

// Awaited returns the signals that the closed gate waits for.
func (e *Gate) Awaited() (signals []Signal) {
	all := gate.Holds
	for i := range e.Signals {
		all = all.And(gate.ParseState(e.Signals[i].State))
	}
	for i := range e.Signals {
		if s := &e.Signals[i]; gate.ParseState(s.State).IsAwaited(e.CloseWhen, all) {
			signals = append(signals, *s)
		}
	}
	return signals
}

// expand replaces the placeholders in a text by names.
func (f *Facts) expand(text string, e *Gate) string {
	return strings.NewReplacer("<node>", f.Node.Node.Name, "<gate>", e.Gate).Replace(text)
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
func (f *Facts) orphanedRecordMessage(v *gate.Verdict) string {
	r, err := gate.ParseRecord(f.Node.Node.Records[v.Gate])
	switch {
	case err != nil:
		return fmt.Sprintf("the NodeGate does not exist, and the record cannot be read (%v): the controller removes the record when no taint on the node can belong to it", err)
	case v.Before == "" && !r.TaintedSince(&f.Node.Node).Before(f.Node.Node.Created): // else it is a former Node's
		return "the NodeGate does not exist: another gate with the same taint takes over the record"
	case r.Source == v1alpha1.SourceFiles && v.Before == v1alpha1.StateClosed:
		return gateset.DeclaredInFile + ": the leader shows what the gate waits for, at /nodes/<name> on its metrics port"
	case r.Source == v1alpha1.SourceFiles:
		return gateset.DeclaredInFile
	case !f.Node.CompleteSources[v1alpha1.SourceCRD]:
		return gateset.NotServed
	default:
		return "the NodeGate does not exist: the controller removes its taint and record within minutes, as soon as it is certain that the NodeGate was deleted; a taint that is not in --allowed-taint-keys stays"
	}
}
