// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// restMax is the number of rounds within which the gates have to settle when nothing
// happens any longer.
const restMax = 20

// settle lets all replicas observe everything and act until nothing changes.
func (x *explorer) settle(s *visit) {
	for range restMax {
		before, writes := s.state, x.writes
		for i := range x.replicas {
			r := &s.replicas[i]
			if r.down {
				r.start(s.machines[:x.nodes])
			}
			if r.gates != s.gates {
				r.seeGates(s.gates)
			}
			for m := range x.nodes {
				x.settleOne(s, i, m)
			}
		}
		if s.state == before && x.writes == writes {
			return
		}
	}
	x.fail(s, "rest", "the gates do not settle")
}

// settleOne lets a replica observe everything about a node, and act.
func (x *explorer) settleOne(s *visit, i, m int) {
	r := &s.replicas[i]
	v := &r.views[m]
	v.see(s.machines[m].node)
	v.pod, r.ledger[m].doubtful = s.machines[m].pod, false
	writes, path := x.writes, s.path
	s.path = &step{what: "replica # sees all, and acts", who: i, before: path}
	granted := x.grants(r, m, x.ask(question{view: *v, gates: r.gates}).wants)
	x.act(s, i, m, granted, func(*visit) {})
	if x.writes == writes {
		s.path = path
	}
}

// end checks that the gates settle in their desired state when nothing happens any
// longer, and again when all failures have ended.
func (x *explorer) end(s *visit) {
	n := s.next("nothing more happens", 0)
	n.left = budget{}
	if !x.isNew(x.ended, n) {
		return
	}
	x.settle(n)
	if !x.isNew(x.settled, n) {
		return
	}
	x.ends++
	for i := range x.nodes {
		x.checkQuiet(n, &n.machines[i])
	}
	n = n.next("all becomes well", 0)
	for i := range x.nodes {
		n.machines[i].becomeWell()
	}
	patience := 3
	if x.left.writers > 0 {
		patience = 40 // the maximum duration of contention
	}
	for range patience {
		x.settle(n)
		if x.isWell(n, func(string, string, ...any) {}) {
			break
		}
		x.pass(&n.state, 61)
	}
	x.isWell(n, func(rule, format string, args ...any) { x.fail(n, rule, format, args...) })
}

// checkQuiet checks that taints and records agree, and belong to existing gates.
func (x *explorer) checkQuiet(s *visit, m *machine) {
	marks := m.node.marks
	for name, r := range marks.records {
		g := x.versions[s.gates].gate(name)
		switch {
		case g == nil || g.Mode == v1alpha1.ModeDryRun:
			x.fail(s, "orphan", "a record of gate %s stays: %s", name, r)
		case r.State == v1alpha1.StateClosed && enforces(g) && g.Accepted && m.node.selected && !isOwn(g, r.RecordedTaint()):
			x.fail(s, "edited", "gate %s is closed with a taint that is not its own: %s", name, r)
		case r.State == v1alpha1.StateClosed && g.Mode != v1alpha1.ModePaused && r.Fought == 0 && m.node.selected && !carries(marks, corev1.Taint{Key: r.RecordedTaint().Key, Effect: r.RecordedTaint().Effect}):
			x.fail(s, "contention", "gate %s is closed, but its taint is missing: %s", name, r)
		}
	}
	for _, g := range x.versions[s.gates].gates {
		if x.maxReclosed == nil && missesBoot(m, &g) {
			x.fail(s, "missed", "gate %s is open in a boot in which its pod is not ready", g.Name)
		}
	}
	for _, t := range marks.taints {
		if isOurs(t) && !accounted(marks, t) && x.left.writers == 0 {
			x.fail(s, "orphan", "the taint %s stays", t.Key)
		}
	}
}

// hasStray reports whether there is a taint of a gate that no record accounts for.
func (x *explorer) hasStray(m *marks, g *gate.Gate) bool {
	return slices.ContainsFunc(m.taints, func(t corev1.Taint) bool {
		return isOwn(g, v1alpha1.TaintOf(t)) && !accounted(m, t)
	})
}

// isOwn reports whether a taint belongs to a gate.
func isOwn(g *gate.Gate, t v1alpha1.Taint) bool { return slices.Contains(g.Taints(), t) }

// missesBoot reports whether a gate is open although it should close for a reboot and
// is granted budget.
func missesBoot(m *machine, g *gate.Gate) bool {
	r := m.node.marks.records[g.Name]
	acts := enforces(g) && g.Accepted && !g.CloseWhen && g.Reclose != v1alpha1.RecloseNever && g.Taint.Effect != corev1.TaintEffectNoExecute
	return acts && m.node.selected && r.State == v1alpha1.StateOpen && r.Boot != bootID(m.node.boot) &&
		m.node.ready == isReady && !m.pod.ready
}

// isWell reports whether every gate has the state on every node that its spec requires
// without failures.
func (x *explorer) isWell(s *visit, fail func(rule, format string, args ...any)) bool {
	well := true
	for i := range x.nodes {
		marks := s.machines[i].node.marks
		for _, g := range x.versions[s.gates].gates {
			r := marks.records[g.Name]
			isClosed := r.State == v1alpha1.StateClosed
			switch {
			case g.Mode == v1alpha1.ModePaused || g.ReadsWrites:
			case isClosed != g.CloseWhen:
				fail("stuck", "gate %s is not in its desired state: %s", g.Name, r)
				well = false
			case isClosed && !carriesOwn(marks, &g):
				fail("contention", "gate %s is closed, but its taint is missing", g.Name)
				well = false
			case !isClosed && enforces(&g) && x.hasStray(marks, &g):
				fail("orphan", "gate %s is open, but its taint stays", g.Name)
				well = false
			}
		}
	}
	return well
}
