// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// racks is a fleet of nodes in two groups, with one gate. It decides about one node at a
// time, from what earlier decisions reported about the others.
type racks struct {
	gate  Gate
	nodes map[string]*sim
	// members contains, by group, what the last decisions reported. settled is true if all
	// nodes have been decided since the controller started.
	members map[string]map[string]GroupMember
	settled bool
	t       *rapid.T
	created int
	oracle  rackOracle
}

// rackOracle restates the rules in plain terms. It knows the group of each node, which
// nodes are open, and which of them satisfy the signals.
type rackOracle struct {
	group       map[string]string
	open, holds map[string]bool
	overridden  map[string]string
	atLeast     int
	closes      bool
}

// settle returns the state in which nothing remains to be done.
func (o *rackOracle) settle() {
	for again := true; again; {
		again = false
		for n, isOpen := range o.open {
			if isOpen && !o.holds[n] {
				o.open[n], again = false, true // a regression
			}
		}
		for n, isOpen := range o.open {
			own := 1
			if o.overridden[n] == v1alpha1.StateClosed {
				own = 0
			}
			others := 0
			for other := range o.open {
				if other != n && o.group[other] == o.group[n] && o.fit(other) {
					others++
				}
			}
			complete := o.group[n] != "" && others+own >= o.atLeast
			switch {
			case !isOpen && o.holds[n] && complete, isOpen && o.holds[n] && !complete && o.closes && o.group[n] != "":
				o.open[n], again = !isOpen, true
			}
		}
	}
}

func (o *rackOracle) fit(n string) bool {
	switch o.overridden[n] {
	case v1alpha1.StateOpen:
		return true
	case v1alpha1.StateClosed:
		return false
	}
	return o.open[n] || o.holds[n]
}

// decide decides about a node, applies the decision, and reports whether the node or its
// group has changed.
func (r *racks) decide(name string) bool {
	s := r.nodes[name]
	s.gates = []Gate{r.gate}
	rack := s.facts.Node.Labels["rack"]
	group := groupOf(r.members[rack], name)
	group.Known = r.settled
	s.facts.Groups = map[string]Group{"g": group}
	d := s.granting("g").run(r.t)
	changed := d.Changes
	v := d.Verdict("g")
	for of := range r.members {
		if _, was := r.members[of][name]; was && of != rack {
			delete(r.members[of], name)
			changed = true
		}
	}
	if rack == "" {
		return changed
	}
	if r.members[rack] == nil {
		r.members[rack] = map[string]GroupMember{}
	}
	m := r.gate.Together.Member(s.facts.Node.Labels, v)
	changed = changed || r.members[rack][name] != m
	r.members[rack][name] = m
	return changed
}

// converge decides about all nodes, in a random order, until nothing changes.
func (r *racks) converge() {
	for range 20 {
		changed := false
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(r.nodes))).Draw(r.t, "order") {
			changed = r.decide(name) || changed
		}
		if changed = changed || !r.settled; !changed {
			return
		}
		r.settled = true
	}
	r.t.Fatalf("the nodes do not converge")
}

// number returns a random number that is less than n.
func (r *racks) number(n int) int { return rapid.IntRange(0, n-1).Draw(r.t, "number") }

// step makes one random change, and returns its description.
func (r *racks) step() string {
	names := slices.Sorted(maps.Keys(r.nodes))
	pick := func() string { return names[r.number(len(names))] }
	switch what := r.number(12); {
	case what == 0 && len(names) < 9 || len(names) < 3:
		return r.create()
	case what == 1:
		n := pick()
		delete(r.nodes, n)
		delete(r.oracle.open, n)
		for _, members := range r.members {
			delete(members, n)
		}
		return "delete " + n
	case what == 2:
		n, rack := pick(), []string{"", "r1", "r2"}[r.number(3)]
		r.nodes[n].label("rack", rack)
		r.oracle.group[n] = rack
		return fmt.Sprintf("label %s %q", n, rack)
	case what == 3: // it only remembers what is on the nodes
		r.members, r.settled = map[string]map[string]GroupMember{}, false
		for _, s := range r.nodes {
			s.forget()
		}
		return "restart"
	case what == 4:
		n, state := pick(), []string{"", v1alpha1.StateOpen, v1alpha1.StateClosed}[r.number(3)]
		if r.nodes[n].endOverride("g"); state != "" {
			r.nodes[n].override("g", state, OverrideMax/2)
		}
		r.oracle.overridden[n] = state
		return fmt.Sprintf("override %s %q", n, state)
	case what == 5:
		n := pick()
		r.nodes[n].boot(r.nodes[n].facts.Node.BootID + "+")
		r.oracle.open[n] = false
		return "reboot " + n
	}
	n := pick()
	r.oracle.holds[n] = !r.oracle.holds[n]
	r.nodes[n].flag("g", map[bool]string{true: "holds"}[r.oracle.holds[n]])
	return fmt.Sprintf("holds %s %v", n, r.oracle.holds[n])
}

// create adds a new node.
func (r *racks) create() string {
	r.created++
	name := fmt.Sprintf("n%02d", r.created)
	s := aNode().ready("True")
	s.facts.Node.Name, s.facts.Node.UID = name, types.UID(name)
	rack := []string{"r1", "r2"}[r.number(2)]
	r.nodes[name] = s.age(0).label("rack", rack)
	r.oracle.group[name], r.oracle.open[name], r.oracle.holds[name], r.oracle.overridden[name] = rack, false, false, ""
	return fmt.Sprintf("create %s in %s", name, rack)
}

// The nodes of groups reach the state that the oracle predicts, whatever the order of the
// decisions, and although the controller restarts and nodes come, go and move.
func TestGroupsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &racks{nodes: map[string]*sim{}, members: map[string]map[string]GroupMember{}, t: t}
		r.oracle = rackOracle{
			group: map[string]string{}, open: map[string]bool{}, holds: map[string]bool{}, overridden: map[string]string{},
			atLeast: 2 + r.number(3), closes: rapid.Bool().Draw(t, "closes"),
		}
		r.gate = aGate("g", reclosing(v1alpha1.RecloseOnRegression), func(g *Gate) { g.CloseAfter = 0 },
			inGroups(intstr.FromInt(r.oracle.atLeast), func(t *Together) { t.Closes = r.oracle.closes }))
		for range 40 {
			what := r.step()
			r.converge()
			r.oracle.settle()
			for n, s := range r.nodes {
				if record := mustParse(t, s, "g"); (record.State == v1alpha1.StateOpen) != r.oracle.open[n] {
					t.Fatalf("after %s, the record of %s is %s, but the oracle says open %v; members %v", what, n, record, r.oracle.open[n], r.members)
				}
			}
		}
	})
}
