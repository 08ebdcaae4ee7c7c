// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// act makes a replica decide about a node and write, and checks the write.
func (x *explorer) act(s *visit, i, m int, grants uint8, push func(*visit)) {
	r, before := &s.replicas[i], s.machines[m].node
	v, account := &r.views[m], &r.ledger[m]
	known := *v
	a := x.ask(question{view: *v, gates: r.gates, grants: grants})
	x.keepStep(s, i, m)
	if a.changes {
		w := x.patch(before, a.patch)
		if w.refused { // it reads the Node again
			v.see(before)
			x.count(account, a.were, false)
			push(s)
			return
		}
		x.writes++
		s.machines[m].node.marks = w.marks
		s.noteWrite(i, m)
		x.check(s, &deed{r: r, m: m, before: before, known: known, wrote: w})
		if x.maxReclosed != nil && s.left.may(s.left.losses) {
			n := s.next("the answer to it is lost", i)
			n.left.spend(&n.left.losses)
			n.replicas[i].ledger[m].doubtful = true
			x.count(&n.replicas[i].ledger[m], a.were, false)
			push(n)
		}
		v.see(s.machines[m].node)
	}
	v.memory = a.memory
	x.count(account, a.are, true)
	push(s)
}

// noteWrite makes other replicas late, unless they know the pod as it is.
func (s *state) noteWrite(by, m int) {
	for i := range s.replicas {
		if r := &s.replicas[i]; i != by && !r.down {
			r.views[m].late = r.views[m].pod != s.machines[m].pod
		}
	}
}

// count updates the account of a node. A write that was certainly applied no longer
// needs a reservation.
func (x *explorer) count(a *account, closed uint8, certain bool) {
	if x.maxReclosed == nil {
		return
	}
	if a.known, a.closed = true, closed; certain {
		a.places = 0
	}
}

// deed is a write of a replica, with the Node and the replica's view of it before.
type deed struct {
	r      *replica
	m      int
	before node
	known  view
	wrote  written
}

// check checks a write against the rules.
func (x *explorer) check(s *visit, d *deed) {
	is, was := s.machines[d.m].node.marks, d.before.marks
	x.checkOthers(s, d)
	if d.known.node.uid != d.before.uid {
		x.fail(s, "other", "a write changes another Node with the same name")
	}
	for name := range x.index {
		x.checkGate(s, d, name, was.records[name], is.records[name])
	}
	for _, t := range is.taints {
		if isOurs(t) && !accounted(is, t) && (accounted(was, t) && x.left.writers == 0 || !carries(was, t)) {
			x.fail(s, "orphan", "no record accounts for the taint %s any longer", t.Key)
		}
	}
	if x.maxReclosed == nil || x.replicas > 1 {
		return
	}
	for name, i := range x.index {
		closed := 0
		for n := range x.nodes {
			closed += int(x.budgeted(s.machines[n].node.marks) >> i & 1)
		}
		if most := gate.MaxReclosed(x.maxReclosed, x.nodes); closed > most {
			x.fail(s, "budget", "gate %s is closed on %d nodes, the maximum is %d", name, closed, most)
		}
	}
}

// checkOthers checks that nothing that belongs to others was changed.
func (x *explorer) checkOthers(s *visit, d *deed) {
	is, was := s.machines[d.m].node.marks, d.before.marks
	same := func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
	if d.wrote.beyond || is.annotations["foreign"] != "x" || !slices.EqualFunc(foreign(is.taints), foreign(was.taints), same) {
		x.fail(s, "foreign", "a write changes something that belongs to others")
	}
}

func foreign(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), isOurs)
}

// checkGate checks the effect of a write on one gate.
func (x *explorer) checkGate(s *visit, d *deed, name string, old, is gate.Record) {
	opened := old.State == v1alpha1.StateClosed && is.State != v1alpha1.StateClosed
	closed := old.State != v1alpha1.StateClosed && is.State == v1alpha1.StateClosed
	var g *gate.Gate // as the replica knows it
	if d.r.gates != notRead {
		g = x.versions[d.r.gates].gate(name)
	}
	acts := g != nil && enforces(g)
	switch {
	case g != nil && g.Mode == v1alpha1.ModePaused && old != is:
		x.fail(s, "paused", "gate %s is paused, but %q changes to %q", name, old, is)
	case closed && !acts:
		x.fail(s, "closes", "gate %s closes although it does not exist or does not act", name)
	case opened && d.r.gates == notRead:
		x.fail(s, "exists", "gate %s opens before the gates have been read", name)
	}
	if acts && opened {
		x.checkOpening(s, d, g, is)
	}
	if anew := is.State == v1alpha1.StateClosed && is.Boot != old.Boot; acts && (closed || anew) {
		x.checkClosing(s, d, g, closed, is)
	}
}

// checkClosing checks that a gate closes for a valid reason, with its taint.
func (x *explorer) checkClosing(s *visit, d *deed, g *gate.Gate, closed bool, is gate.Record) {
	m := &s.machines[d.m]
	switch {
	case closed && is.Reason == v1alpha1.ReasonRebooted && m.reported > minute:
		x.fail(s, "long ago", "gate %s closes without budget for a boot %d s ago", g.Name, m.reported)
	case closed && is.Reason == v1alpha1.ReasonRebootedUnobserved && g.Taint.Effect == corev1.TaintEffectNoExecute:
		x.fail(s, "evicts", "gate %s evicts pods for an unobserved boot", g.Name)
	}
	if g.Accepted && m.node.selected && !carriesOwn(m.node.marks, g) && !carriesOwn(d.known.node.marks, g) {
		x.fail(s, "contention", "gate %s closes for %s without adding its taint", g.Name, is.Reason)
	}
}

// checkOpening checks that a gate opens because of the actual state.
func (x *explorer) checkOpening(s *visit, d *deed, g *gate.Gate, is gate.Record) {
	m, v := &s.machines[d.m], &d.known
	switch {
	case is.Reason == v1alpha1.ReasonSignalsHold && !g.CloseWhen:
		switch {
		case !v.pod.provesBoot(m) && !m.pod.provesBoot(m):
			x.fail(s, "stale", "gate %s opens in %s because of a pod %+v", g.Name, bootID(m.node.boot), v.pod)
		case len(g.Signals) > 1 && !v.node.fit:
			x.fail(s, "signals", "gate %s opens although one of its signals does not hold", g.Name)
		case v.node.ready == isUnknown || v.node.ready == isShuttingDown:
			x.fail(s, "blocked", "gate %s opens on a node that is unreachable or shutting down", g.Name)
		}
	case is.State == "" && (m.node.selected || m.left < 30) && !g.CloseWhen:
		x.fail(s, "flap", "gate %s opens although it selected the node until %d s ago", g.Name, m.left)
	}
}

// provesBoot reports whether the status is that of a pod that is ready in the node's
// boot.
func (p podStatus) provesBoot(m *machine) bool { return p.there && p.ready && p.boot >= m.node.boot }

// enforces reports whether a gate acts.
func enforces(g *gate.Gate) bool { return g.Mode == "" || g.Mode == v1alpha1.ModeEnforce }

// carries reports whether the marks contain a taint.
func carries(m *marks, t corev1.Taint) bool {
	return slices.ContainsFunc(m.taints, func(on corev1.Taint) bool { return on.MatchTaint(&t) })
}

// carriesOwn reports whether the marks contain one of a gate's taints.
func carriesOwn(m *marks, g *gate.Gate) bool {
	return slices.ContainsFunc(g.Taints(), func(t v1alpha1.Taint) bool {
		return carries(m, corev1.Taint{Key: t.Key, Effect: t.Effect})
	})
}

// accounted reports whether the record of a closed gate accounts for a taint.
func accounted(m *marks, t corev1.Taint) bool {
	for _, r := range m.records {
		if put := r.RecordedTaint(); r.State == v1alpha1.StateClosed && put.Key == t.Key && put.Effect == t.Effect {
			return true
		}
	}
	return false
}
