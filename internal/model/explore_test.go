// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/internal/gate"
)

const nodesMax, replicasMax = 2, 2

// setting describes an exploration.
type setting struct {
	// versions contains the possible versions of the gates. The exploration begins with
	// the first; an edit changes it to any other.
	versions        []version
	daemons         *gate.DaemonSets
	nodes, replicas int
	// inStep is true if replicas observe a Node and its pod at the same time.
	inStep bool
	// maxReclosed is the budget that replicas account for. Nil means that budget may be
	// granted or not.
	maxReclosed *intstr.IntOrString
	left        budget
	// begin changes a machine before the gates have opened on its node.
	begin func(a *api, m *machine)
	// decide and wire replace the real functions where a test checks that a rule finds a defect.
	decide func([]gate.Gate, *gate.Facts, time.Time) gate.Decision
	wire   func(patch []byte) []byte
}

// state is everything at one moment. States can be compared by value.
type state struct {
	machines [nodesMax]machine
	replicas [replicasMax]replica
	// gates is the version of the gates in the API server.
	gates int8
	left  budget
}

// visit is a state and the steps that led to it.
type visit struct {
	state
	path *step
}

// step is an event on a node, or an action of a replica.
type step struct {
	what   string
	who    int
	before *step
}

func (s *step) String() string {
	var all []string
	for ; s != nil; s = s.before {
		all = append(all, strings.ReplaceAll(s.what, "#", fmt.Sprint(s.who)))
	}
	var b strings.Builder
	for i := len(all) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "  %s\n", all[i])
	}
	return b.String()
}

// next returns a copy of the state, to be modified by the next step.
func (s *visit) next(what string, who int) *visit {
	return &visit{state: s.state, path: &step{what: what, who: who, before: s.path}}
}

// explorer visits all states.
type explorer struct {
	*setting
	*api
	seed maphash.Seed
	// seen contains all states. ended contains those in which nothing more can happen, and
	// settled those in which, after that, the replicas have nothing more to do.
	seen, ended, settled map[uint64]bool
	answers              map[question]*answer
	memories             map[string]*memory
	// index numbers the gates of all versions, by name.
	index  map[string]int
	writes int
	ends   int
	// found contains the first violation of each rule.
	found map[string]string
}

func (x *explorer) fail(s *visit, rule, format string, args ...any) {
	if x.found[rule] == "" {
		x.found[rule] = fmt.Sprintf("%s: %s, after\n%s", rule, fmt.Sprintf(format, args...), s.path)
	}
}

func newExplorer(w *setting) *explorer {
	x := &explorer{
		setting: w, api: newAPI(), seed: maphash.MakeSeed(), seen: make(map[uint64]bool), ended: make(map[uint64]bool), settled: make(map[uint64]bool),
		answers: make(map[question]*answer), memories: make(map[string]*memory), index: make(map[string]int), found: make(map[string]string),
	}
	for _, v := range w.versions {
		for _, g := range v.gates {
			if _, known := x.index[g.Name]; !known {
				x.index[g.Name] = len(x.index)
			}
		}
	}
	w.nodes, w.replicas = max(w.nodes, 1), max(w.replicas, 1)
	if w.daemons == nil {
		w.daemons = theDaemon(keyA, keyB, keyC, foreignKey)
	}
	if w.decide == nil {
		w.decide = gate.Decide
	}
	if w.wire == nil {
		w.wire = func(patch []byte) []byte { return patch }
	}
	if b := &w.left; b.any == 0 {
		b.any = b.reboots + b.failures + b.crashes + b.flaps + b.writers + b.edits + b.renewals + b.lapses + b.losses + b.fits
	}
	return x
}

func explore(t *testing.T, w *setting) *explorer {
	t.Helper()
	start := time.Now()
	x := newExplorer(w)
	first := &visit{state: state{left: w.left}}
	for i := range w.nodes {
		m := newMachine(x.api)
		if w.begin != nil {
			w.begin(x.api, &m)
		}
		first.machines[i] = m
	}
	for i := range w.replicas {
		first.replicas[i].start(first.machines[:w.nodes])
	}
	x.settle(first)
	x.walk(first)
	t.Logf("%d states, %d writes, %d quiet ends, %d decisions, in %s", len(x.seen), x.writes, x.ends, len(x.answers), time.Since(start).Round(time.Millisecond))
	return x
}

// isNew reports whether a state is not in a set yet, and adds it.
func (x *explorer) isNew(set map[uint64]bool, s *visit) bool {
	key := x.key(&s.state)
	anew := !set[key]
	set[key] = true
	return anew
}

// key identifies a state, regardless of the order of replicas and of nodes.
func (x *explorer) key(s *state) uint64 {
	key := x.keyOf(s)
	if x.nodes == 2 {
		swapped := *s
		swapped.machines[0], swapped.machines[1] = s.machines[1], s.machines[0]
		for i := range swapped.replicas {
			r := &swapped.replicas[i]
			r.views[0], r.views[1] = r.views[1], r.views[0]
			r.ledger[0], r.ledger[1] = r.ledger[1], r.ledger[0]
		}
		key = min(key, x.keyOf(&swapped))
	}
	return key
}

func (x *explorer) keyOf(s *state) uint64 {
	if x.replicas == 2 {
		a, b := maphash.Comparable(x.seed, s.replicas[0]), maphash.Comparable(x.seed, s.replicas[1])
		if a > b {
			a, b = b, a
		}
		return maphash.Comparable(x.seed, struct {
			machines [nodesMax]machine
			gates    int8
			left     budget
			a, b     uint64
		}{s.machines, s.gates, s.left, a, b})
	}
	return maphash.Comparable(x.seed, *s)
}

// walk visits a state and all states that can follow from it.
func (x *explorer) walk(s *visit) {
	stack := []*visit{s}
	push := func(n *visit) {
		if x.isNew(x.seen, n) {
			stack = append(stack, n)
		}
	}
	push(s)
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		x.ofNodes(s, push)
		for i := range x.replicas {
			x.ofReplica(s, i, push)
		}
		x.end(s)
	}
}

// ofNodes calls push with the states after each possible event on the nodes or the
// gates.
func (x *explorer) ofNodes(s *visit, push func(*visit)) {
	current := x.current(s)
	for i := range x.nodes {
		for e := range events {
			if e := &events[e]; e.may(&s.machines[i], &s.left) && (!e.slow || current) {
				n := s.next("node # "+e.name, i)
				e.do(x, &n.state, &n.machines[i])
				push(n)
			}
		}
	}
	if s.left.may(s.left.edits) {
		for v := range x.versions {
			if int8(v) != s.gates {
				n := s.next("the gates become: "+x.versions[v].name, 0)
				n.left.spend(&n.left.edits)
				n.gates = int8(v)
				push(n)
			}
		}
	}
	if s.left.ticks == 0 || !current {
		return
	}
	for i := range x.nodes {
		if !s.machines[i].mayWait() {
			return
		}
	}
	for _, d := range []age{31, 61} {
		n := s.next("# s pass", int(d))
		n.left.ticks--
		x.pass(&n.state, d)
		push(n)
	}
}

// pass lets time pass.
func (x *explorer) pass(s *state, d age) {
	for i := range x.nodes {
		s.machines[i].older(x.api, d)
	}
	for i := range x.replicas {
		s.replicas[i].older(x, d)
	}
}

// current reports whether every replica that is up has observed everything and has
// nothing to write or to remember.
func (x *explorer) current(s *visit) bool {
	for i := range x.replicas {
		r := s.replicas[i]
		if r.down {
			continue
		}
		if r.gates != s.gates {
			return false
		}
		for n := range x.nodes {
			v := &r.views[n]
			if v.node != s.machines[n].node || v.pod != s.machines[n].pod || v.late || r.ledger[n].doubtful {
				return false
			}
			a := x.ask(question{view: *v, gates: r.gates})
			if a.changes || a.memory != v.memory {
				return false
			}
			if x.maxReclosed != nil && (!r.ledger[n].known || x.grants(&r, n, a.wants) != 0) {
				return false
			}
		}
	}
	return true
}

// ofReplica calls push with the states after each possible action of a replica.
func (x *explorer) ofReplica(s *visit, i int, push func(*visit)) {
	r := &s.replicas[i]
	if r.down {
		n := s.next("replica # starts", i)
		n.replicas[i].start(n.machines[:x.nodes])
		push(n)
		return
	}
	if r.gates != s.gates {
		n := s.next("replica # sees the gates", i)
		n.replicas[i].seeGates(s.gates)
		push(n)
	}
	for m := range x.nodes {
		x.ofView(s, i, m, push)
	}
	if s.left.may(s.left.crashes) {
		n := s.next("replica # crashes", i)
		n.left.spend(&n.left.crashes)
		n.replicas[i] = replica{down: true}
		push(n)
	}
}

// ofView calls push with the states after each possible action of a replica on one
// node.
func (x *explorer) ofView(s *visit, i, m int, push func(*visit)) {
	v, of := &s.replicas[i].views[m], [...]string{"node 0", "node 1"}[m]
	if v.node != s.machines[m].node {
		n := s.next("replica # sees "+of, i)
		n.replicas[i].views[m].see(s.machines[m].node)
		x.keepStep(n, i, m)
		push(n)
	}
	if v.pod != s.machines[m].pod || v.late {
		n := s.next("replica # sees the pod of "+of, i)
		n.replicas[i].views[m].seePod(s.machines[m].pod)
		push(n)
	}
	if s.replicas[i].ledger[m].doubtful {
		n := s.next("replica # reads anew "+of, i)
		n.replicas[i].ledger[m].doubtful = false
		n.replicas[i].views[m].see(s.machines[m].node)
		push(n)
		return
	}
	q := question{view: *v, gates: s.replicas[i].gates}
	wants := x.ask(q).wants
	n := s.next("replica # acts on "+of, i)
	granted := x.grants(&n.replicas[i], m, wants)
	if x.maxReclosed != nil || granted == 0 {
		x.act(n, i, m, granted, push)
		return
	}
	x.act(n, i, m, 0, push)
	x.act(s.next("replica # acts, with budget, on "+of, i), i, m, granted, push)
}

// keepStep makes a replica observe the pod together with the node, if that is assumed.
func (x *explorer) keepStep(s *visit, i, m int) {
	if x.inStep {
		s.replicas[i].views[m].seePod(s.machines[m].pod)
	}
}

// seeGates makes a replica observe the current gates. It accounts for all nodes again
// before it closes any under a budget.
func (r *replica) seeGates(version int8) {
	r.gates = version
	for i := range r.ledger {
		r.ledger[i].known = false
	}
}
