// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// becomes says what becomes of a node by a gate, with the change or without it.
func (t *teller) becomes(f *fate, name string, changed bool) groupKey {
	set, d := t.before, &f.before
	if changed {
		set, d = t.after, &f.after
	}
	v := d.Verdict(name)
	if v == nil {
		return groupKey{}
	}
	key := t.group(f, set.gate(name), v, d.Records[name])
	key.DryRun = v.DryRun
	return key
}

// group says what becomes of a node by a verdict, and by the record that comes of
// it.
func (t *teller) group(f *fate, g *gate.Gate, v *gate.Verdict, record string) groupKey {
	switch {
	case v.Before == "" && v.Reason == v1alpha1.ReasonGateDeleted:
		return groupKey{What: HandsOver, Why: "another gate with the same taint takes over, and nothing opens by this"}
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
		return groupKey{What: Waits, Why: "as many nodes of its zone as budget.maxReclosed allows would be closed before it"}
	}
	switch v.After {
	case v1alpha1.StateClosed:
		if taint := recordedTaint(record); taint != "" && taint != recordedTaint(f.Node.Records[v.Gate]) {
			return groupKey{What: Retaints, Why: "the gate's taint would be another"}
		}
		return groupKey{What: StaysClosed}
	case v1alpha1.StateOpen:
		if wait, lapses := lapse(g, v); lapses {
			return groupKey{What: Lapses, Why: "its signals do not hold: it closes within " + duration.HumanDuration(wait) + ", unless they hold again"}
		}
		return groupKey{What: StaysOpen}
	}
	return groupKey{What: Outside, Why: t.outside(f, g, v)}
}

// lapse is how long, at most, an open gate whose signals do not hold stays open.
func lapse(g *gate.Gate, v *gate.Verdict) (time.Duration, bool) {
	switch {
	case g == nil || g.Reclose != v1alpha1.RecloseOnRegression:
		return 0, false
	case !v.LostSince.IsZero():
		return g.CloseAfter, true
	}
	return g.RolloutGrace, !v.RolloutSince.IsZero()
}

func recordedTaint(raw string) string {
	r, err := gate.ParseRecord(raw)
	if err != nil || r.State != v1alpha1.StateClosed {
		return ""
	}
	return r.Taint
}

// outside says why a node that a gate selects would be no member of it.
func (t *teller) outside(f *fate, g *gate.Gate, v *gate.Verdict) string {
	switch {
	case g == nil:
		return "there is no such gate"
	case !g.Accepted:
		return "the gate would not be in force"
	case g.Mode == v1alpha1.ModePaused:
		return "the gate is paused, and takes in no node"
	case v.Wants == gate.WantPods:
		return "whether the node is idle is not known, for its pods could not be read (existingNodes: CloseIfIdle)"
	case v.Wants == gate.WantIdle:
		return "it is not idle: it is looked at again every ten minutes, and closed when it is (existingNodes: CloseIfIdle)"
	case g.Existing == v1alpha1.ExistingIgnore:
		return "it was there before the gate, and is left alone (existingNodes: Ignore)"
	case v.Blocked != "":
		return "it is left alone for now: " + v.Obstacle().Message()
	case slices.ContainsFunc(v.Readings, func(r gate.Reading) bool { return r.State == gate.Unknown }):
		return "it is not known what the gate's signals say on it"
	case g.Existing == v1alpha1.ExistingAdopt:
		return "it joins once the gate's signals hold on it (existingNodes: Adopt)"
	}
	return "nothing is to be done about it now"
}

// closes and opens say why, as far as it can come of a change of gates.
var (
	closes = map[v1alpha1.Reason]string{
		v1alpha1.ReasonBirth:        "it is younger than ten minutes and than the gate, and counts as new",
		v1alpha1.ReasonAdopted:      "it carries the taint already",
		v1alpha1.ReasonExisting:     "existingNodes asks for it, and the gate's signals do not hold there",
		v1alpha1.ReasonExistingIdle: "existingNodes asks for it, no pod but daemons runs there, and the gate's signals do not hold",
		v1alpha1.ReasonSignalsHold:  "all signals of closeWhen hold",
		v1alpha1.ReasonRegression:   "a signal does not hold",
		v1alpha1.ReasonRebooted:     "it has a new boot ID",
		v1alpha1.ReasonNodeSilent:   "its Ready condition is Unknown",
		v1alpha1.ReasonNodeShutdown: "it has announced its shutdown",
		v1alpha1.ReasonOverridden:   "a person has it closed for a time",
	}
	opens = map[v1alpha1.Reason]string{
		v1alpha1.ReasonSignalsHold:    "all signals of openWhen hold",
		v1alpha1.ReasonSignalsCleared: "a signal of closeWhen does not hold",
		v1alpha1.ReasonAdopted:        "existingNodes asks for it, and the gate's signals hold there",
		v1alpha1.ReasonGateDeleted:    "the gate would be gone",
		v1alpha1.ReasonNotSelected:    "the gate would not select it",
		v1alpha1.ReasonOptedOut:       "it is out of all gates by its label",
		v1alpha1.ReasonDryRun:         "the gate would be in dry run",
		v1alpha1.ReasonDeadlinePassed: "the gate's deadline has passed there (action: Open)",
		v1alpha1.ReasonNodeReturned:   "it speaks",
		v1alpha1.ReasonOverridden:     "a person has it open for a time",
	}
)

// newNodes says, of a gate in force or not, what its signals say on the nodes that it selects, as if
// these had been born into it: with evidence as strict as it is for them.
func (t *teller) newNodes(g *gate.Gate) *NewNodes {
	if g.CloseWhen || len(g.Signals) == 0 || g.Mode == v1alpha1.ModePaused {
		return nil
	}
	born := *g
	born.Accepted, born.Mode, born.Deadline = true, v1alpha1.ModeEnforce, gate.Deadline{}
	only := &gateSet{gates: []gate.Gate{born}, keys: t.after.keys}
	free := *t.World
	free.Policy = gate.KeyPolicy{} // as if it were in force
	out := &NewNodes{Signals: make([]SignalCount, len(g.Signals))}
	others := make([]map[signalGroupKey]*SignalGroup, len(g.Signals))
	for i := range g.Signals {
		out.Signals[i].Name, others[i] = g.Signals[i].Name, make(map[signalGroupKey]*SignalGroup)
	}
	for i := range t.Nodes {
		if !born.Selector.Matches(t.Nodes[i].Node.Labels) {
			continue
		}
		d := only.decide(&free, asBorn(&born, t.Nodes[i]), nil, t.Now)
		v := d.Verdict(g.Name)
		if v == nil {
			continue
		}
		out.Nodes++
		switch {
		case v.Opened():
			out.Open++
		case isAbsent(v.Blocked):
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
			others[j][key].Nodes = append(others[j][key].Nodes, t.Nodes[i].Node.Name)
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

// signalGroupKey is what the nodes of a SignalGroup have in common.
type signalGroupKey struct {
	state  gate.State
	reason v1alpha1.ReadingReason
}

// isAbsent tells whether a node on which this stands in the way says nothing about
// what a new one would wait for.
func isAbsent(blocked v1alpha1.ReadingReason) bool {
	switch blocked {
	case v1alpha1.ReadingNodeSilent, v1alpha1.ReadingNodeShutdown, v1alpha1.ReadingNodeSetup:
		return true
	}
	return false
}

// asBorn is a node as it would be if it had been born into the gate.
func asBorn(g *gate.Gate, f gate.Facts) gate.Facts {
	n := &f.Node
	r := gate.Record{
		State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Boot: n.BootID,
		Taint: gate.TaintText(g.Taint), Source: v1alpha1.SourceCRD,
	}
	n.Records, n.Overrides = map[string]string{g.Name: r.String()}, nil
	taints := slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool { return t.Key == g.Taint.Key && t.Effect == g.Taint.Effect })
	n.Taints = append(taints, corev1.Taint{Key: g.Taint.Key, Value: g.Taint.Value, Effect: g.Taint.Effect})
	return f
}
