// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/signal"
)

// Of returns the effect of a change on a world.
func Of(w *World, c Change) *Preview {
	declared, actions := w.changed(c)
	t := &predictor{World: w, before: w.compile(w.Declared), after: w.compile(declared), nodes: w.Nodes}
	t.after.NoteEdits(t.before, w.Now)
	if c.DaemonSets != nil {
		t.nodes = slices.Clone(w.Nodes)
		for i := range t.nodes {
			t.nodes[i].DaemonSets = c.DaemonSets
		}
	}
	t.predict()
	t.findDeadlocks()
	p := &Preview{Time: w.Now.UTC(), Nodes: len(w.Nodes), Gates: []Gate{}}
	names := slices.Clone(c.Delete)
	for i := range c.Apply {
		names = append(names, c.Apply[i].Name)
	}
	for _, name := range slices.Concat(names, t.affected(actions)) {
		action := cmp.Or(actions[name], Affect)
		g := t.gate(name, action)
		p.Gates = append(p.Gates, g)
		p.wantsPods = p.wantsPods || t.wantsPods(name)
		p.Changes = p.Changes || slices.ContainsFunc(g.Groups, func(of Group) bool { return of.Acts() })
	}
	return p
}

// outcome is the decisions about a node, without and with the change.
type outcome struct {
	*gate.Facts
	before, after gate.Decision
}

// predictor predicts the effect of a change on all nodes.
type predictor struct {
	*World
	before, after *gateset.Set
	// nodes are the nodes with the change, before gates close or open.
	nodes    []gate.Facts
	outcomes []outcome
	// budgets are the budgets with the change.
	budgets budgets
	// deadlocks are those of the gates after the change.
	deadlocks map[string][]signal.Deadlock
}

// place is the scope of a budget.
type place struct{ gate, zone string }

// budgets contains the budget of each gate and zone.
type budgets map[place]*Zone

// predict decides about all nodes without and with the change. Both times it grants
// budget, so that closing that happens without the change is not attributed to it.
func (t *predictor) predict() {
	t.outcomes = make([]outcome, len(t.Nodes))
	t.decide(t.before, t.Nodes, func(f *outcome) *gate.Decision { return &f.before })
	t.budgets = t.decide(t.after, t.nodes, func(f *outcome) *gate.Decision { return &f.after })
}

// decide decides about these nodes: first without budget, to find out which nodes require
// it, and then again for the nodes to which budget is granted. The controller's order of
// nodes is undefined; here they are in alphabetical order.
func (t *predictor) decide(set *gateset.Set, nodes []gate.Facts, of func(*outcome) *gate.Decision) budgets {
	all := make(budgets)
	var groups []map[string]gate.Group
	if set.OpensTogether() {
		groups = set.Groups(nodes, func(f *gate.Facts) gate.Decision { return t.World.decide(set, *f, nil) })
	}
	for i := range t.outcomes {
		f := &t.outcomes[i]
		if f.Facts = &nodes[i]; groups != nil {
			facts := nodes[i]
			facts.Groups, f.Facts = groups[i], &facts
		}
		*of(f) = t.World.decide(set, *f.Facts, nil)
		all.count(f, of(f))
	}
	for at, z := range all {
		if ng := set.Declared[at.gate]; ng != nil {
			z.MaxReclosed = gate.MaxReclosed(ng.Spec.Budget.MaxReclosed, z.Nodes)
		}
	}
	for i := range t.outcomes {
		f := &t.outcomes[i]
		if granted := all.grant(f, of(f)); len(granted) > 0 {
			*of(f) = t.World.decide(set, *f.Facts, granted)
		}
	}
	return all
}

// count adds the node to the budgets in the same way as the controller.
func (b budgets) count(f *outcome, d *gate.Decision) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		z := b.zone(v.Gate, f)
		if v.Selected {
			z.Nodes++
		}
		state, reason := v.After, v.Reason
		if o := v.Overridden; o != nil && o.Own != "" {
			state, reason = o.Own, o.OwnReason
		}
		if state == v1alpha1.StateClosed && gate.IsBudgeted(reason) {
			z.Closed++
		}
	}
}

func (b budgets) zone(gateName string, f *outcome) *Zone {
	at := place{gateName, f.Node.Zone()}
	if b[at] == nil {
		b[at] = &Zone{Zone: at.zone}
	}
	return b[at]
}

// grant grants the available budget. It returns the gates that may close on or adopt
// the node immediately.
func (b budgets) grant(f *outcome, d *gate.Decision) map[string]bool {
	granted := make(map[string]bool)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch v.Wants {
		case gate.WantPace: // all nodes are adopted, a few each second
		case gate.WantBudget:
			z := b.zone(v.Gate, f)
			if z.Closed+z.Closes >= z.MaxReclosed {
				z.Waits++
				continue
			}
			z.Closes++
		default:
			continue
		}
		granted[v.Gate] = true
	}
	return granted
}

// affected returns the names of the gates that are not part of the change, but are
// affected by it.
func (t *predictor) affected(actions map[string]Action) []string {
	names := make(map[string]bool)
	for name := range t.after.Declared {
		if t.before.Accepted(name) != t.after.Accepted(name) {
			names[name] = true
		}
	}
	for i := range t.outcomes {
		f := &t.outcomes[i]
		for _, d := range []*gate.Decision{&f.before, &f.after} {
			for j := range d.Verdicts {
				name := d.Verdicts[j].Gate
				if names[name] || actions[name] != "" {
					continue
				}
				before, after := t.becomes(f, name, false), t.becomes(f, name, true)
				names[name] = before.What != after.What && after.What.moves()
			}
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool { return !names[name] || actions[name] != "" })
}

// gate returns the effect of the change on one gate and all nodes.
func (t *predictor) gate(name string, action Action) Gate {
	out := Gate{Gate: name, Action: action, Groups: []Group{}}
	g, declared := t.after.Gate(name)
	if declared {
		a := t.after.Acceptance[name]
		out.InForce, out.Message, out.Mode = a.Accepted, a.Message, g.Mode.OrDefault()
		out.NewNodes = t.newNodes(g)
		out.Problems = t.problems(g)
	}
	was, _ := t.before.Gate(name)
	of := cmp.Or(g, was)
	if of == nil { // the gate does not exist, but nodes have records of it
		of = &gate.Gate{Name: name}
	}
	for _, taint := range of.Taints() {
		if taint.Key != "" {
			out.Taints = append(out.Taints, gate.TaintText(taint))
		}
	}
	groups := make(map[groupKey][]string)
	for i := range t.outcomes {
		f := &t.outcomes[i]
		key := t.becomes(f, name, true)
		if before := t.becomes(f, name, false); key.What.moves() && before.What == key.What && before.DryRun == key.DryRun && action != Delete {
			key.Anyway = true
		}
		if v := f.after.Verdict(name); v != nil && v.Selected {
			out.Selected++
		}
		if key.What != "" {
			groups[key] = append(groups[key], f.Node.Name)
		}
	}
	out.Groups = append(out.Groups, sorted(groups)...)
	out.Budget = t.budget(name)
	if g != nil {
		out.Evictions = t.evictions(g, out.tainted())
		out.Descheduled = t.descheduled(g, out.tainted())
	}
	return out
}

// groupKey is what the nodes of a group have in common.
type groupKey struct {
	What   What
	Why    string
	Anyway bool
	DryRun bool
}

func sorted(groups map[groupKey][]string) []Group {
	out := make([]Group, 0, len(groups))
	for key, nodes := range groups {
		out = append(out, Group{What: key.What, Why: key.Why, Anyway: key.Anyway, DryRun: key.DryRun, Nodes: nodes})
	}
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.What), slices.Index(order, b.What)), -cmp.Compare(len(a.Nodes), len(b.Nodes)), cmp.Compare(a.Why, b.Why), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
	return out
}

// budget returns the gate's budget in each zone in which nodes require it.
func (t *predictor) budget(name string) []Zone {
	var out []Zone
	for at, z := range t.budgets {
		if at.gate == name && z.Closes+z.Waits > 0 {
			out = append(out, *z)
		}
	}
	slices.SortFunc(out, func(a, b Zone) int { return cmp.Compare(a.Zone, b.Zone) })
	return out
}

// because returns the text of a reason followed by the reason itself.
func because(text string, reason v1alpha1.Reason) string {
	if text == "" {
		return string(reason)
	}
	return fmt.Sprintf("%s (%s)", text, reason)
}
