// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// becomes returns the effect of a gate on a node, with or without the change.
func (t *predictor) becomes(f *outcome, name string, changed bool) groupKey {
	set, d := t.before, &f.before
	if changed {
		set, d = t.after, &f.after
	}
	v := d.Verdict(name)
	if v == nil {
		return groupKey{}
	}
	g, _ := set.Gate(name) // nil for a gate that does not exist
	key := t.group(f, g, v, d.Records[name])
	key.DryRun = v.DryRun
	return key
}

// group returns the effect of a verdict on a node, given the record that will be
// written.
func (t *predictor) group(f *outcome, g *gate.Gate, v *gate.Verdict, record string) groupKey {
	switch {
	case v.Before == "" && v.Reason == v1alpha1.ReasonGateDeleted:
		return groupKey{What: HandsOver, Why: "another gate with the same taint takes over, so the node stays closed"}
	case v.Closed():
		return groupKey{What: Closes, Why: because(closes[v.Reason], v.Reason)}
	case v.Opened() && v.Before == "":
		return groupKey{What: Joins, Why: because(opens[v.Reason], v.Reason)}
	case v.Opened():
		return groupKey{What: Opens, Why: because(opens[v.Reason], v.Reason)}
	case v.Before == v1alpha1.StateOpen && v.After == "":
		return groupKey{What: Leaves, Why: because(opens[v.Reason], v.Reason)}
	}
	if v.Wants == gate.WantBudget {
		return groupKey{What: Waits, Why: "budget.maxReclosed allows no more nodes of its zone to be closed at a time"}
	}
	switch v.After {
	case v1alpha1.StateClosed:
		if taint := recordedTaint(record); taint != "" && taint != recordedTaint(f.Node.Records[v.Gate]) {
			return groupKey{What: Retaints, Why: retaints(taint)}
		}
		return groupKey{What: StaysClosed, Why: waitsForGroup(v)}
	case v1alpha1.StateOpen:
		return open(g, v)
	}
	return groupKey{What: Outside, Why: nonMemberReason(g, v)}
}

// retaints returns the text for nodes whose gate stays closed with another taint.
func retaints(taint string) string { return "the gate's taint would change to " + taint }

// open returns the effect of a gate that is open and stays open for now.
func open(g *gate.Gate, v *gate.Verdict) groupKey {
	if wait, lapses := lapse(g, v); lapses {
		return groupKey{What: Lapses, Why: "its signals do not hold: it closes within " + duration.HumanDuration(wait) + ", unless they hold again"}
	}
	if !v.GroupWait.Since.IsZero() {
		return groupKey{What: Lapses, Why: "its group is incomplete: it closes within " + duration.HumanDuration(g.CloseAfter) + ", unless the group is complete again"}
	}
	return groupKey{What: StaysOpen}
}

// lapse returns the maximum time for which an open gate whose signals do not hold stays
// open.
func lapse(g *gate.Gate, v *gate.Verdict) (wait time.Duration, lapses bool) {
	if g == nil || g.Reclose != v1alpha1.RecloseOnRegression {
		return 0, false
	}
	for i, lost := range v.Lost {
		if v.Readings[i].State != gate.NotYet {
			continue
		}
		if after := g.ClosesAfter(lost); !lapses || after < wait {
			wait, lapses = after, true
		}
	}
	return wait, lapses
}

// waitsForGroup returns why the node's group keeps the gate closed, or "".
func waitsForGroup(v *gate.Verdict) string {
	if v.Group == nil || v.Group.Complete() || v.Blocked != v.Group.Reading().Reason {
		return ""
	}
	if v.Blocked == v1alpha1.ReadingGroupIncomplete { // one text for all groups
		return "the node is fit, but fewer nodes of its group are than openTogether.atLeast requires"
	}
	return v.Group.Reading().Message()
}

// recordedTaint returns the taint that a record accounts for, or "".
func recordedTaint(raw string) string {
	r, err := gate.ParseRecord(raw)
	if err != nil || r.Effective() != v1alpha1.StateClosed {
		return ""
	}
	return r.Taint
}

// nonMemberReason returns the reason why a node that a gate selects would not be a
// member.
func nonMemberReason(g *gate.Gate, v *gate.Verdict) string {
	switch {
	case g == nil:
		return "the gate does not exist"
	case v.NonMember == v1alpha1.NonMemberBlocked:
		return "nothing happens for now: " + v.Obstacle().Message()
	}
	return gate.NonMemberMessage(v.NonMember)
}

// closes and opens contain the texts of the reasons that a change of gates can have.
var (
	closes = map[v1alpha1.Reason]string{
		v1alpha1.ReasonBirth:              "the node is younger than ten minutes and than the gate, and counts as new",
		v1alpha1.ReasonAdopted:            "the node already carries the taint",
		v1alpha1.ReasonExisting:           "existingNodes requires it, and the gate's signals do not hold",
		v1alpha1.ReasonExistingIdle:       "existingNodes requires it, the node runs only daemon pods, and the gate's signals do not hold",
		v1alpha1.ReasonSignalsHold:        "all signals of closeWhen hold",
		v1alpha1.ReasonRegression:         "a signal does not hold",
		v1alpha1.ReasonGroupIncomplete:    "its group is incomplete (closeTogether: WhenIncomplete)",
		v1alpha1.ReasonRebooted:           "the node has a new boot ID",
		v1alpha1.ReasonRebootedUnobserved: "the node has rebooted meanwhile, and a signal does not hold",
		v1alpha1.ReasonNodeSilent:         "the node is unreachable (Ready is Unknown)",
		v1alpha1.ReasonNodeShutdown:       "the node has announced its shutdown",
		v1alpha1.ReasonOverridden:         "a manual override keeps it closed",
		v1alpha1.ReasonOverrideEnded:      "a manual override that kept it open has ended",
	}
	opens = map[v1alpha1.Reason]string{
		v1alpha1.ReasonSignalsHold:    "all signals of openWhen hold",
		v1alpha1.ReasonSignalsCleared: "a signal of closeWhen does not hold",
		v1alpha1.ReasonAdopted:        "existingNodes requires it, and the gate's signals hold",
		v1alpha1.ReasonGateDeleted:    "the gate would no longer exist",
		v1alpha1.ReasonNotSelected:    "the gate would not select the node",
		v1alpha1.ReasonOptedOut:       "a label excludes the node from all gates",
		v1alpha1.ReasonDryRun:         "the gate would be in dry run",
		v1alpha1.ReasonDeadlinePassed: "the gate's deadline has passed (action: Open)",
		v1alpha1.ReasonNodeReturned:   "the node is reporting again",
		v1alpha1.ReasonOverridden:     "a manual override keeps it open",
		v1alpha1.ReasonOverrideEnded:  "a manual override that kept it closed has ended",
		v1alpha1.ReasonOpenedByHand:   "a user has removed the taint",
		v1alpha1.ReasonNotIdle:        "it closed because the node was idle, but pods run there",
	}
)

// newNodes returns the state of the gate's signals on the nodes that it selects, as if
// the gate had closed at their creation: the evidence must be as strict as for new nodes.
// It does so even if the gate is not in force.
func (t *predictor) newNodes(g *gate.Gate) *NewNodes {
	if g.CloseWhen || len(g.Signals) == 0 || g.Mode == v1alpha1.ModePaused {
		return nil
	}
	enforced := *g
	enforced.Together = nil                       // the signals of one node are of interest
	enforced.OpenAfter, enforced.MinClosed = 0, 0 // for which a new node waits from the start
	enforced.Accepted, enforced.Mode, enforced.Deadline = true, v1alpha1.ModeEnforce, gate.Deadline{}
	only := &gateset.Set{Gates: []gate.Gate{enforced}, Keys: t.keysWith(g)}
	free := *t.World
	free.Policy = gate.KeyPolicy{} // the gate is evaluated as if it were in force
	out := &NewNodes{Signals: make([]SignalCount, len(g.Signals)), Together: g.Together != nil, OpenAfterSeconds: int64(g.OpenAfter.Seconds()), MinClosedSeconds: int64(g.MinClosed.Seconds())}
	others := make([]map[signalGroupKey]*SignalGroup, len(g.Signals))
	for i := range g.Signals {
		out.Signals[i].Name, others[i] = g.Signals[i].Name, make(map[signalGroupKey]*SignalGroup)
	}
	for i := range t.nodes {
		if !enforced.Selects(t.nodes[i].Node.Labels) {
			continue
		}
		d := free.decide(only, asNew(&enforced, t.nodes[i]), nil)
		v := d.Verdict(g.Name)
		if v == nil {
			continue
		}
		out.Nodes++
		switch {
		case v.Opened():
			out.Open++
		case isUninformative(v.Blocked):
			out.Blocked++
		}
		for j, r := range v.Readings {
			if r.State == gate.Holds {
				out.Signals[j].Holds++
				continue
			}
			key := signalGroupKey{r.State, r.Reason}
			if others[j][key] == nil {
				others[j][key] = &SignalGroup{State: r.State.String(), Reason: r.Reason, Message: r.Message()}
			}
			others[j][key].Nodes = append(others[j][key].Nodes, t.nodes[i].Node.Name)
		}
	}
	for i := range others {
		for _, group := range others[i] {
			out.Signals[i].Others = append(out.Signals[i].Others, *group)
		}
		slices.SortFunc(out.Signals[i].Others, func(a, b SignalGroup) int {
			return cmp.Or(-cmp.Compare(len(a.Nodes), len(b.Nodes)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.State, b.State))
		})
	}
	return out
}

// keysWith returns the taint keys of all gates, and those of a gate even if it is not in force.
func (t *predictor) keysWith(g *gate.Gate) map[string]bool {
	keys := make(map[string]bool, len(t.after.Keys)+1)
	maps.Copy(keys, t.after.Keys)
	for _, taint := range g.Taints() {
		keys[taint.Key] = true
	}
	return keys
}

// signalGroupKey is what the nodes of a SignalGroup have in common.
type signalGroupKey struct {
	state  gate.State
	reason v1alpha1.ReadingReason
}

// isUninformative reports whether a node with this obstacle does not show what a new
// node would wait for.
func isUninformative(blocked v1alpha1.ReadingReason) bool {
	switch blocked {
	case v1alpha1.ReadingNodeSilent, v1alpha1.ReadingNodeShutdown, v1alpha1.ReadingNodeSetup:
		return true
	}
	return false
}

// asNew returns the facts of a node as if the gate had closed at its creation.
func asNew(g *gate.Gate, f gate.Facts) gate.Facts {
	n := &f.Node
	r := gate.Record{
		State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Boot: n.BootID,
		Taint: gate.TaintText(g.Taint), Source: v1alpha1.SourceCRD,
	}
	n.Records, n.Overrides = map[string]string{g.Name: r.String()}, nil
	taints := slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool { return t.Key == g.Taint.Key && t.Effect == g.Taint.Effect })
	n.Taints = append(taints, g.Taint.Core())
	return f
}
