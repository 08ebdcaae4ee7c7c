// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// carried is what a decision hands on to the next decision about the same Node, and what
// is not worth a write. The maps are by gate.
type carried struct {
	uid types.UID
	// seq is the number of the set of gates of that decision.
	seq    uint64
	lost   map[string][]gate.Lost
	left   map[string]time.Time
	group  map[string]gate.GroupWait
	steady map[string]gate.Steady
	shadow map[string]string
}

// recall sets the facts that the previous decision handed on. Times since which signals
// hold or do not hold are those of the gate's current signals.
func (s *nodeStates) recall(f *gate.Facts, set *gateset.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byName[f.Node.Name]
	if state == nil || state.carried == nil || state.carried.uid != f.Node.UID {
		return
	}
	state.carried = state.carried.under(set)
	r := state.carried
	f.Lost, f.LeftSince, f.Steady, f.Shadow = r.lost, r.left, r.steady, r.shadow
	f.GroupWaits = r.group
}

// keep stores what a decision hands on. With part, the decision is a part of another one:
// for gates whose signals it did not read, the previous values are kept. The same applies
// to gates that are not covered; nil covers all.
func (s *nodeStates) keep(set *gateset.Set, n *gate.Node, d *gate.Decision, part bool, covers func(gate string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.at(n.Name)
	before, r := state.carried, carried{uid: n.UID, seq: set.Seq}
	if before == nil || before.uid != n.UID {
		before = &carried{}
	}
	before = before.under(set)
	var unread map[string]bool
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; part && len(v.Readings) == 0 && before.uid == n.UID {
			put(&unread, v.Gate, true)
		}
	}
	decided := func(gate string) bool { return !unread[gate] && (covers == nil || covers(gate)) }
	r.retainOthers(before, decided)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; decided(v.Gate) {
			r.add(v)
		}
	}
	if state.carried = nil; !r.isEmpty() {
		state.carried = &r
	}
}

// add stores what the decision about one gate hands on.
func (r *carried) add(v *gate.Verdict) {
	if v.Lost != nil {
		put(&r.lost, v.Gate, v.Lost)
	}
	if !v.LeftSince.IsZero() {
		put(&r.left, v.Gate, v.LeftSince)
	}
	if !v.GroupWait.Since.IsZero() {
		put(&r.group, v.Gate, v.GroupWait)
	}
	if v.Shadow != "" {
		put(&r.shadow, v.Gate, v.Shadow)
	}
	if v.Steady != nil {
		put(&r.steady, v.Gate, *v.Steady)
	}
}

// under returns what is handed on if the gates are those of the set: without times of signals
// that the gates no longer have, and of groups of gates that have changed. What it contains is
// not modified, because decisions read it.
func (r *carried) under(set *gateset.Set) *carried {
	changed := func(gate string) bool { return set.SignalsSince[gate] > r.seq }
	if r.seq >= set.Seq {
		return r
	}
	now := &carried{uid: r.uid, seq: set.Seq, left: r.left, shadow: r.shadow} // these do not depend on signals
	putOthers(&now.lost, r.lost, changed)
	putOthers(&now.steady, r.steady, changed)
	putOthers(&now.group, r.group, func(gate string) bool { return set.Since[gate] > r.seq })
	return now
}

func (r *carried) isEmpty() bool {
	return r.lost == nil && r.left == nil && r.group == nil && r.steady == nil && r.shadow == nil
}

// retainOthers keeps the values of gates that are not covered.
func (r *carried) retainOthers(before *carried, covers func(gate string) bool) {
	putOthers(&r.lost, before.lost, covers)
	putOthers(&r.left, before.left, covers)
	putOthers(&r.group, before.group, covers)
	putOthers(&r.steady, before.steady, covers)
	putOthers(&r.shadow, before.shadow, covers)
}

func putOthers[V any](m *map[string]V, from map[string]V, covers func(gate string) bool) {
	for name, value := range from {
		if !covers(name) {
			put(m, name, value)
		}
	}
}

// put sets a key of a map, which is created if it is nil.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = v
}
