// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

func flipOf(name string) gate.Change {
	return gate.ChangeOf(gate.Aspect{Kind: gate.AspectCondition, Name: name})
}

// A node is reconciled partially only if it is settled and the change is known.
func TestPartialOrFullReconcile(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for name, test := range map[string]struct {
		before func(*nodeStates)
		full   bool
	}{
		"never reconciled":              {func(s *nodeStates) { s.addChange("n", flipOf("a")) }, true},
		"settled":                       {func(s *nodeStates) { s.settle("n", 1, time.Time{}); s.addChange("n", flipOf("a")) }, false},
		"changed before it was settled": {func(s *nodeStates) { s.addChange("n", flipOf("a")); s.settle("n", 1, time.Time{}) }, false},
		"recheck not due":               {func(s *nodeStates) { s.settle("n", 1, now.Add(1)); s.addChange("n", flipOf("a")) }, false},
		"recheck due":                   {func(s *nodeStates) { s.settle("n", 1, now); s.addChange("n", flipOf("a")) }, true},
		"no known change":               {func(s *nodeStates) { s.settle("n", 1, time.Time{}) }, true},
		"everything changed": {func(s *nodeStates) {
			s.settle("n", 1, time.Time{})
			s.addChange("n", flipOf("a"))
			s.addChange("n", gate.Everything())
		}, true},
		"settled under other gates": {func(s *nodeStates) { s.settle("n", 2, time.Time{}); s.addChange("n", flipOf("a")) }, true},
		"new node of the same name": {func(s *nodeStates) { s.settle("n", 1, time.Time{}); s.forget("n"); s.addChange("n", flipOf("a")) }, true},
		"being reconciled": {func(s *nodeStates) {
			s.settle("n", 1, time.Time{})
			s.takeChange("n", 1, now)
			s.addChange("n", flipOf("a"))
		}, true},
		"another node settled": {func(s *nodeStates) { s.settle("m", 1, time.Time{}); s.addChange("n", flipOf("a")) }, true},
	} {
		s := newNodeStates()
		test.before(s)
		if change, _ := s.takeChange("n", 1, now); change.IsEverything() != test.full {
			t.Errorf("%s: full reconcile: %t, want %t", name, change.IsEverything(), test.full)
		}
		if state := s.byName["n"]; state != nil && (!state.change.IsNothing() || state.settledUnder != 0) {
			t.Errorf("%s: the node has pending changes or is settled: %+v", name, state)
		}
	}
}

// conditionGate returns a gate that closes, without a budget, as soon as a condition is
// not True. By default it shares its taint with no other gate.
func conditionGate(name, condition string, change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	return controllertest.Gate(name, append([]func(*v1alpha1.NodeGateSpec){func(s *v1alpha1.NodeGateSpec) {
		s.Taint.Key = "test.nodegate.dev/" + name
		s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: condition, Status: "True"}}
		s.Budget.MaxReclosed = new(intstr.FromString("100%"))
	}}, change...)...)
}

// notifyingWriter reports what it has written, as the feed does.
type notifyingWriter struct{ *world }

func (w notifyingWriter) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	_, err := w.world.Apply(ctx, n, d)
	if err == nil {
		w.c.NodeChanged(n.Name, written(n, d))
	}
	return nil, err
}

// written returns what a write changes.
func written(n *gate.Node, d *gate.Decision) (c gate.Change) {
	for name := range d.Records {
		c = c.And(gate.ChangeOf(gate.Aspect{Kind: gate.AspectRecord, Name: name}))
	}
	for _, t := range slices.Concat(n.Taints, d.Taints) {
		if !slices.Contains(n.Taints, t) || !slices.Contains(d.Taints, t) {
			c = c.And(gate.ChangeOf(gate.Aspect{Kind: gate.AspectTaint, Name: t.Key}))
		}
	}
	return c
}

// edit changes a node, and reports what has changed.
func (w *world) edit(name string, what gate.Change, change func(*gate.Node)) {
	w.mu.Lock()
	node := w.nodes[name]
	// The controller may be reading the node.
	node.Labels, node.Records = maps.Clone(node.Labels), maps.Clone(node.Records)
	node.Conditions, node.Taints = slices.Clone(node.Conditions), slices.Clone(node.Taints)
	change(&node)
	w.nodes[name] = node
	w.mu.Unlock()
	w.c.NodeChanged(name, what)
}

func setCondition(i int, status corev1.ConditionStatus) func(*gate.Node) {
	return func(n *gate.Node) { n.Conditions[i].Status, n.Conditions[i].Transition = status, time.Now() }
}

// reading counts how often a signal is read.
type reading struct {
	gate.Signal
	times *atomic.Int32
}

func (s reading) Read(in gate.Input) gate.Reading { s.times.Add(1); return s.Signal.Read(in) }

// countReads makes the controller count, by gate, how often signals are read.
func countReads(c *Controller) map[string]*atomic.Int32 {
	set := *c.set.Load()
	set.Gates = slices.Clone(set.Gates)
	reads := make(map[string]*atomic.Int32)
	for i := range set.Gates {
		g := &set.Gates[i]
		reads[g.Name] = new(atomic.Int32)
		g.Signals = []gate.NamedSignal{{Name: g.Signals[0].Name, Signal: reading{g.Signals[0].Signal, reads[g.Name]}}}
	}
	set.Parts = gate.Divide(set.Gates, nil)
	c.set.Store(&set)
	return reads
}

// When a condition changes, the gate that reads it closes, is reported, and opens again.
// The signals of no other gate are read, even if another gate waits for a time.
func TestOnlyGatesThatLookAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(s *v1alpha1.NodeGateSpec) { s.Timing.CloseAfterSeconds = new(int32(60)) }
		w := newWorld(t, conditionGate("disk", "Disk"), conditionGate("memory", "Memory"), conditionGate("slow", "Slow", slow))
		w.writer = notifyingWriter{w}
		w.add(1, func(_ int, n *gate.Node) {
			for _, name := range []string{"Disk", "Memory", "Slow"} {
				n.Conditions = append(n.Conditions, gate.Condition{Type: name, Status: "True"})
				isOpen(n, strings.ToLower(name))
			}
			n.Conditions[3].Status, n.Conditions[3].Transition = "False", time.Now()
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		reads, before := countReads(w.c), w.readCount()
		wantStates := func(want ...string) {
			t.Helper()
			controllertest.Pass(time.Second)
			for _, a := range reportsOrNil(w.c.gateReports("n0000")) {
				want = slices.DeleteFunc(want, func(s string) bool { return s == a.Gate+"="+a.State })
			}
			if len(want) > 0 || reads["memory"].Load()+reads["slow"].Load() > 0 {
				t.Errorf("missing %v; memory was read %d times, slow %d", want, reads["memory"].Load(), reads["slow"].Load())
			}
		}
		w.edit("n0000", flipOf("Disk"), setCondition(1, "False"))
		wantStates("disk=Closed", "memory=Open", "slow=Open")
		w.edit("n0000", flipOf("Disk"), setCondition(1, "True"))
		wantStates("disk=Open", "memory=Open", "slow=Open")
		if n := w.readCount() - before; n != 4 { // for each change, one for the change and one for the write
			t.Errorf("facts were read %d times, want 4", n)
		}
		if due := w.c.nodes.byName["n0000"].recheck; due.IsZero() || time.Until(due) > time.Minute {
			t.Errorf("the recheck of the settled node is at %s, want within a minute", due)
		}
		readsOfDisk := reads["disk"].Load()
		w.edit("n0000", flipOf("unused"), func(*gate.Node) {})
		if wantStates("disk=Open"); reads["disk"].Load() != readsOfDisk {
			t.Error("a signal was read because of a condition that no gate reads")
		}
		controllertest.Pass(time.Minute) // for closeAfterSeconds of the gate slow
		if s := reportsOrNil(w.c.gateReports("n0000")); s[2].Gate != "slow" || s[2].State != v1alpha1.StateClosed {
			t.Errorf("the settled gate slow was not rechecked in time: %+v", s)
		}
	})
}

func reportsOrNil(all []gateReport, ok bool) []gateReport {
	if !ok {
		return nil
	}
	return all
}

// chaosGates returns gates of which some share a taint.
func chaosGates() []*v1alpha1.NodeGate {
	sharing := func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/shared" }
	damped := func(s *v1alpha1.NodeGateSpec) {
		s.Timing.CloseAfterSeconds, s.Timing.OpenAfterSeconds = new(int32(40)), 20
	}
	follows := func(s *v1alpha1.NodeGateSpec) {
		*s = v1alpha1.NodeGateSpec{Taint: s.Taint, CloseWhen: s.OpenWhen, Budget: s.Budget}
	}
	return []*v1alpha1.NodeGate{
		conditionGate("damped", "A", damped), conditionGate("one", "B", sharing), conditionGate("other", "C", sharing),
		conditionGate("plain", "B"), conditionGate("follows", "C", follows), controllertest.Gate("labelled"),
	}
}

// chaosWorld returns a world of a few nodes on which all chaosGates are open.
func chaosWorld(t *testing.T) *world {
	w := newWorld(t, chaosGates()...)
	w.writer = notifyingWriter{w}
	w.add(5, func(_ int, n *gate.Node) {
		for _, name := range []string{"A", "B", "C"} {
			n.Conditions = append(n.Conditions, gate.Condition{Type: name, Status: "True"})
		}
		for _, g := range w.gates {
			isOpen(n, g.Name)
		}
	})
	return w
}

// chaos performs one random action. If precise, it reports what has changed; otherwise it
// reports that everything may have changed.
func (w *world) chaos(dice *rand.Rand, precise bool) {
	node := fmt.Sprintf("n%04d", dice.IntN(5))
	status := []corev1.ConditionStatus{"True", "False", "Unknown"}[dice.IntN(3)]
	reported := func(c gate.Change) gate.Change {
		if precise {
			return c
		}
		return gate.Everything()
	}
	aspect := func(kind gate.AspectKind, name string) gate.Change {
		return reported(gate.ChangeOf(gate.Aspect{Kind: kind, Name: name}))
	}
	switch at := dice.IntN(12); at {
	case 0, 1, 2, 3, 4, 5:
		w.edit(node, reported(flipOf([]string{"A", "B", "C"}[at%3])), setCondition(1+at%3, status))
	case 6:
		w.edit(node, gate.Everything(), setCondition(0, status))
	case 7:
		w.edit(node, gate.Everything(), func(n *gate.Node) { n.Labels = map[string]string{"fit": ""} })
	case 8:
		w.edit(node, aspect(gate.AspectRecord, "plain"), func(n *gate.Node) { delete(n.Records, "plain") })
	case 9:
		w.edit(node, aspect(gate.AspectTaint, "test.nodegate.dev/shared"), func(n *gate.Node) {
			n.Taints = slices.DeleteFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == "test.nodegate.dev/shared" })
		})
	case 10:
		failures := int32(dice.IntN(4))
		var tries atomic.Int32 // by concurrent workers
		w.mu.Lock()
		w.fail = func(string) error {
			if tries.Add(1) <= failures {
				return errors.New("no response")
			}
			return nil
		}
		w.mu.Unlock()
	case 11:
		gates := slices.Clone(w.gates)
		i := dice.IntN(len(gates))
		gates[i] = gates[i].DeepCopy()
		gates[i].Generation++
		w.setGates(true, gates...)
	}
	controllertest.Pass(time.Duration(dice.IntN(30)) * time.Second)
}

// states describes the states of all gates on all nodes: according to their records, to
// the taints, and to the controller's reports.
func (w *world) states() string {
	var all []string
	nodes := w.copies()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		for gateName, raw := range nodes[name].Records {
			r, _ := gate.ParseRecord(raw)
			all = append(all, fmt.Sprint(name, " ", gateName, ": ", r.State, " ", r.Reason, " ", r.Taint))
		}
		for _, t := range nodes[name].Taints {
			all = append(all, fmt.Sprint(name, " has taint ", t.Key))
		}
		reports, _ := w.c.gateReports(name)
		for _, r := range reports {
			all = append(all, fmt.Sprintf("%s %s is reported as %s %s, waiting: %v", name, r.Gate, r.State, r.Reason, r.Waiting != nil))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Partial reconciles lead to the same states of a fleet as full reconciles, whatever
// happens to the nodes.
func TestPartialAndFullReconcilesAgree(t *testing.T) {
	for seed := range seeds(4) {
		states, reads := [2]string{}, [2]int{}
		for i, precise := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w := chaosWorld(t)
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(10 * time.Second)
				dice := rand.New(rand.NewPCG(seed, 0))
				for range 40 {
					w.chaos(dice, precise)
				}
				controllertest.Pass(3 * time.Minute)
				states[i], reads[i] = w.states(), w.fullReadCount()
			})
		}
		if states[0] != states[1] {
			t.Fatalf("seed %d: with partial reconciles\n%s\n\nwith full reconciles\n%s", seed, states[0], states[1])
		}
		if reads[0] >= reads[1] {
			t.Errorf("seed %d: %d full reads with partial reconciles, want fewer than the %d with full reconciles", seed, reads[0], reads[1])
		}
	}
}
