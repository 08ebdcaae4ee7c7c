// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Of foretells what a change does to a world.
func Of(w *World, c Change) *Preview {
	declared, actions := w.changed(c)
	t := &teller{World: w, before: w.compile(w.Declared), after: w.compile(declared)}
	t.foretell()
	p := &Preview{Time: w.Now.UTC(), Nodes: len(w.Nodes), Gates: []Gate{}}
	names := slices.Clone(c.Delete)
	for i := range c.Apply {
		names = append(names, c.Apply[i].Name)
	}
	for _, name := range slices.Concat(names, t.affected(actions)) {
		action := cmp.Or(actions[name], Affect)
		g := t.tell(name, action)
		p.Gates = append(p.Gates, g)
		p.Changes = p.Changes || slices.ContainsFunc(g.Groups, func(of Group) bool { return of.Acts() })
	}
	return p
}

// fate is what is decided about one node, without and with the change.
type fate struct {
	*gate.Facts
	before, after gate.Decision
}

// teller tells of each gate what it does to all nodes.
type teller struct {
	*World
	before, after *gateSet
	fates         []fate
	// budgets are those with the change.
	budgets budgets
}

// place is what a budget is about.
type place struct{ gate, zone string }

// budgets are what closing is bounded by.
type budgets map[place]*Zone

// foretell decides about all nodes, without the change and with it, in the same way:
// what would be granted anyway is no part of the change.
func (t *teller) foretell() {
	t.fates = make([]fate, len(t.Nodes))
	for i := range t.Nodes {
		t.fates[i].Facts = &t.Nodes[i]
	}
	t.decide(t.before, func(f *fate) *gate.Decision { return &f.before })
	t.budgets = t.decide(t.after, func(f *fate) *gate.Decision { return &f.after })
}

// decide decides about all nodes: without grants, so that it is known who asks for
// budget, and again where there is some. In what order nodes come is up to the
// controller; here it is that of their names.
func (t *teller) decide(set *gateSet, of func(*fate) *gate.Decision) budgets {
	all := make(budgets)
	for i := range t.fates {
		f := &t.fates[i]
		*of(f) = set.decide(t.World, *f.Facts, nil, t.Now)
		all.count(f, of(f))
	}
	for at, z := range all {
		if ng := set.declared[at.gate]; ng != nil {
			z.MaxReclosed = gate.MaxReclosed(ng.Spec.Budget.MaxReclosed, z.Nodes)
		}
	}
	for i := range t.fates {
		f := &t.fates[i]
		if granted := all.grant(f, of(f)); len(granted) > 0 {
			*of(f) = set.decide(t.World, *f.Facts, granted, t.Now)
		}
	}
	return all
}

// count counts the node where budgets rest on it, as the controller's tally does.
func (b budgets) count(f *fate, d *gate.Decision) {
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

func (b budgets) zone(gateName string, f *fate) *Zone {
	at := place{gateName, f.Node.Zone()}
	if b[at] == nil {
		b[at] = &Zone{Zone: at.zone}
	}
	return b[at]
}

// grant grants what there is room for. It returns the gates that may close or adopt
// the node at once.
func (b budgets) grant(f *fate, d *gate.Decision) map[string]bool {
	granted := make(map[string]bool)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch v.Wants {
		case gate.WantPace: // all come to it, a few each second
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

// affected names the gates that are no part of the change and would do something
// else because of it.
func (t *teller) affected(actions map[string]Action) []string {
	names := make(map[string]bool)
	for name, a := range t.after.accepted {
		if t.before.accepted[name].Accepted != a.Accepted {
			names[name] = true
		}
	}
	for i := range t.fates {
		f := &t.fates[i]
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

// tell tells what becomes of all nodes by one gate.
func (t *teller) tell(name string, action Action) Gate {
	out := Gate{Gate: name, Action: action, Groups: []Group{}}
	g := t.after.gate(name)
	if g != nil {
		a := t.after.accepted[name]
		out.InForce, out.Message, out.Mode = a.Accepted, a.Message, cmp.Or(g.Mode, v1alpha1.ModeEnforce)
		out.NewNodes = t.newNodes(g)
		out.Problems = t.problems(g)
	}
	of := cmp.Or(g, t.before.gate(name))
	if of == nil { // there is no such gate, only records
		of = &gate.Gate{Name: name}
	}
	for _, taint := range of.Taints() {
		if taint.Key != "" {
			out.Taints = append(out.Taints, gate.TaintText(taint))
		}
	}
	groups := make(map[groupKey][]string)
	for i := range t.fates {
		f := &t.fates[i]
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
	if g != nil && action != Keep {
		out.Evictions = t.evictions(g, out.Groups)
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

// budget returns the gate's budget in each zone where something asks for it.
func (t *teller) budget(name string) []Zone {
	var out []Zone
	for at, z := range t.budgets {
		if at.gate == name && z.Closes+z.Waits > 0 {
			out = append(out, *z)
		}
	}
	slices.SortFunc(out, func(a, b Zone) int { return cmp.Compare(a.Zone, b.Zone) })
	return out
}

// because says why in words, with the reason that records and events have.
func because(text string, reason v1alpha1.Reason) string {
	if text == "" {
		return string(reason)
	}
	return fmt.Sprintf("%s (%s)", text, reason)
}
