// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// longest is how many waiting nodes are told of, as in a NodeGate's status.
const longest = 10

// fill says how each gate fares: those that are declared, and those that nodes have
// records of. Counted tells whether the nodes could be read.
func (f *FleetStatus) fill(declared []v1alpha1.NodeGate, nodes []*gate.Node, counted bool) {
	s := compile(declared)
	tallies := s.tally(nodes)
	for i := range declared {
		ng := &declared[i]
		g := f.declared(ng, gate.TaintText(s.gate(ng.Name).Taint))
		if g.Stale != "" {
			if why := s.refused[ng.Name]; why != "" { // which takes no controller to know
				g.Ready, g.Reason, g.Message = string(metav1.ConditionFalse), v1alpha1.ReasonNotAccepted, why
			}
			g.Nodes, g.Waiting = nil, nil
			if counted {
				g.count(tallies[ng.Name])
			}
		}
		delete(tallies, ng.Name)
		f.Gates = append(f.Gates, g)
	}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[name]
		g := GateStatus{Gate: name, Source: t.source, Taint: t.taint, Ready: string(metav1.ConditionUnknown)}
		switch t.source {
		case v1alpha1.SourceFiles:
			g.Stale = "the gate is declared in a file of the controller (--gates), which is not seen from here"
		default:
			g.Source, g.Gone = "", true
			g.Stale = "there is no such NodeGate: the controller lets go of its nodes as soon as it is certain that it was deleted, within minutes"
		}
		g.count(t)
		f.Gates = append(f.Gates, g)
	}
	slices.SortFunc(f.Gates, func(a, b GateStatus) int { return cmp.Compare(a.Gate, b.Gate) })
}

// declared says what the gate's object tells.
func (f *FleetStatus) declared(ng *v1alpha1.NodeGate, taint string) GateStatus {
	g := GateStatus{
		Gate: ng.Name, Source: v1alpha1.SourceCRD, Mode: cmp.Or(ng.Spec.Mode, v1alpha1.ModeEnforce), Taint: taint,
		Ready: string(metav1.ConditionUnknown), Stale: f.staleness(ng), Nodes: &ng.Status.Nodes, Waiting: ng.Status.Waiting,
	}
	if ng.ReadError != "" {
		g.Mode = "" // nobody knows what it says
	}
	if ready := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady); ready != nil && g.Stale == "" {
		g.Ready, g.Reason, g.Message = string(ready.Status), ready.Reason, ready.Message
	}
	for _, kind := range []string{v1alpha1.ConditionOverdue, v1alpha1.ConditionThrottled, v1alpha1.ConditionContended} {
		if c := meta.FindStatusCondition(ng.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue && g.Stale == "" {
			g.Troubles = append(g.Troubles, Trouble{Condition: kind, Message: c.Message})
		}
	}
	return g
}

// count has the gate's nodes be those that were counted.
func (g *GateStatus) count(t *tally) {
	g.FromRecords, g.Nodes = true, &v1alpha1.NodeCounts{}
	if t != nil {
		g.Nodes = &t.counts
		slices.SortFunc(t.waiting, func(a, b v1alpha1.WaitingNode) int {
			return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
		})
		g.Waiting = t.waiting[:min(len(t.waiting), longest)]
	}
}

// tally is what the nodes themselves tell of a gate.
type tally struct {
	source, taint string
	counts        v1alpha1.NodeCounts
	waiting       []v1alpha1.WaitingNode
}

// tally counts each gate's nodes by their records.
func (s *sight) tally(nodes []*gate.Node) map[string]*tally {
	all := make(map[string]*tally)
	of := func(name string) *tally {
		if all[name] == nil {
			all[name] = &tally{}
		}
		return all[name]
	}
	for _, n := range nodes {
		out := n.Labels[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue
		for i := range s.gates {
			g := &s.gates[i]
			if out || g.Broken || !g.Selector.Matches(n.Labels) {
				continue
			}
			t := of(g.Name)
			t.counts.Selected++
			if n.Records[g.Name] == "" && g.CloseWhen && g.Accepted { // it needs no record to be open
				t.counts.Open++
			}
		}
		for name, raw := range n.Records {
			r, err := gate.ParseRecord(raw)
			t := of(name)
			if s.gate(name) == nil { // what it selects is not known
				t.counts.Selected++
			}
			if err == nil {
				t.add(n, &r)
			}
		}
	}
	return all
}

func (t *tally) add(n *gate.Node, r *gate.Record) {
	t.source, t.taint = cmp.Or(t.source, r.Source), cmp.Or(t.taint, r.Taint)
	if r.Override != "" {
		t.counts.Overridden++
	}
	if cmp.Or(r.Override, r.State) == v1alpha1.StateOpen {
		t.counts.Open++
		return
	}
	t.counts.Closed++
	if r.Overdue {
		t.counts.Overdue++
	}
	since := r.Since
	if r.Override != "" {
		since = r.OverrideSince
	}
	if since.IsZero() {
		since = n.Created // closed by the API server, which has no clock
	}
	t.waiting = append(t.waiting, v1alpha1.WaitingNode{Node: n.Name, Since: metav1.NewTime(since.UTC().Truncate(time.Second))})
}
