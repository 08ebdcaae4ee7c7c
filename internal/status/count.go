// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
)

// maxWaiting is the maximum number of waiting nodes, as in a NodeGate's status.
const maxWaiting = 10

// fill adds the status of each gate.
func (s *Status) fill(f *Facts) {
	tallies := tallyAll(f.Gates, f.Nodes)
	for _, name := range f.Gates.Names() {
		ng := f.Gates.Declared[name]
		declared, _ := f.Gates.Gate(name)
		g := s.declared(ng, gate.TaintText(declared.Taint))
		if g.Stale != "" {
			if why := f.Gates.Rejection(name); why != "" { // this is certain even without a controller
				g.Ready, g.Reason, g.Message = string(metav1.ConditionFalse), v1alpha1.ReasonNotAccepted, why
			}
			g.Nodes, g.Waiting, g.NonMembers = nil, nil, nil
			t := tallies[name]
			if dry := g.Mode == v1alpha1.ModeDryRun; !f.NodesUnread && (!dry || t != nil && t.counts.Closed > 0) { // a dry run has no records
				g.count(t)
			}
		}
		delete(tallies, name)
		s.Gates = append(s.Gates, g)
	}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[name]
		g := Gate{Gate: name, Source: t.source, Taint: t.taint, Ready: string(metav1.ConditionUnknown)}
		switch {
		case t.source == v1alpha1.SourceFiles:
			g.Stale = gateset.DeclaredInFile
		case f.NotServed:
			g.Source, g.Gone, g.Stale = "", true, gateset.NotServed
		default:
			g.Source, g.Gone = "", true
			g.Stale = "the NodeGate does not exist: the controller removes its taints and records within minutes, as soon as it is certain that the NodeGate was deleted; taints that are not in --allowed-taint-keys stay"
		}
		g.count(t)
		s.Gates = append(s.Gates, g)
	}
	slices.SortFunc(s.Gates, func(a, b Gate) int { return cmp.Compare(a.Gate, b.Gate) })
}

// declared returns the status that the NodeGate object itself provides.
func (s *Status) declared(ng *v1alpha1.NodeGate, taint string) Gate {
	g := Gate{
		Gate: ng.Name, Source: v1alpha1.SourceCRD, Mode: ng.Spec.Mode.OrDefault(), Taint: taint,
		Ready: string(metav1.ConditionUnknown), Stale: s.staleness(ng), Nodes: &ng.Status.Nodes, Waiting: ng.Status.Waiting, NonMembers: ng.Status.NonMembers,
	}
	if ng.ReadError != "" {
		g.Mode = "" // unknown
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

// maxLapsed is the maximum number of nodes that are named because the deadline opened them, as
// in a NodeGate's conditions.
const maxLapsed = 3

// count sets the counts and the waiting nodes to those of the tally, and adds the problem that no
// count shows.
func (g *Gate) count(t *tally) {
	g.FromRecords, g.Nodes = true, &v1alpha1.NodeCounts{}
	if t != nil {
		g.Nodes = &t.counts
		slices.SortFunc(t.waiting, func(a, b v1alpha1.WaitingNode) int {
			return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
		})
		g.Waiting = t.waiting[:min(len(t.waiting), maxWaiting)]
		if slices.Sort(t.lapsed); len(t.lapsed) > 0 {
			g.Troubles = append(g.Troubles, Trouble{Condition: v1alpha1.ConditionOverdue, Message: gate.OpenedByDeadline(printer.Some(t.lapsed, maxLapsed))})
		}
	}
}

// tally is the state of a gate's nodes according to their records.
type tally struct {
	source, taint string
	counts        v1alpha1.NodeCounts
	waiting       []v1alpha1.WaitingNode
	// lapsed are the names of the nodes on which the deadline opened the gate.
	lapsed []string
}

// tallyAll counts each gate's nodes by their records.
func tallyAll(gates *gateset.Set, nodes []*gate.Node) map[string]*tally {
	all := make(map[string]*tally)
	of := func(name string) *tally {
		if all[name] == nil {
			all[name] = &tally{}
		}
		return all[name]
	}
	for _, n := range nodes {
		for i := range gates.Gates {
			g := &gates.Gates[i]
			if !g.Selects(n.Labels) {
				continue
			}
			t := of(g.Name)
			t.counts.Selected++
			if n.Records[g.Name] == "" && g.CloseWhen && g.Accepted { // an open closeWhen gate has no record
				t.counts.Open++
			}
		}
		for name, raw := range n.Records {
			r, err := gate.ParseRecord(raw)
			t := of(name)
			if gates.Declared[name] == nil { // its selector is unknown
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
	if r.Effective() == v1alpha1.StateOpen {
		t.counts.Open++
		if r.Override == "" && r.Reason == v1alpha1.ReasonDeadlinePassed {
			t.lapsed = append(t.lapsed, n.Name)
		}
		return
	}
	t.counts.Closed++
	if r.Overdue {
		t.counts.Overdue++
	}
	since := r.TaintedSince(n).UTC().Truncate(time.Second)
	t.waiting = append(t.waiting, v1alpha1.WaitingNode{Node: n.Name, Since: metav1.NewTime(since)})
}
