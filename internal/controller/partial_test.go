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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

func flipOf(name string) gate.Change {
	return gate.ChangeOf(gate.Aspect{Kind: gate.AspectCondition, Name: name})
}

// What has changed is all that is looked at only where nothing else can have.
func TestPartialOrFullReconcile(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for name, test := range map[string]struct {
		before func(*partials)
		whole  bool
	}{
		"never looked at":      {func(p *partials) { p.addChange("n", flipOf("a")) }, true},
		"at rest":              {func(p *partials) { p.settle("n", 1, time.Time{}); p.addChange("n", flipOf("a")) }, false},
		"told before it rests": {func(p *partials) { p.addChange("n", flipOf("a")); p.settle("n", 1, time.Time{}) }, false},
		"not yet time":         {func(p *partials) { p.settle("n", 1, now.Add(1)); p.addChange("n", flipOf("a")) }, false},
		"time":                 {func(p *partials) { p.settle("n", 1, now); p.addChange("n", flipOf("a")) }, true},
		"nothing is told":      {func(p *partials) { p.settle("n", 1, time.Time{}) }, true},
		"everything is told": {func(p *partials) {
			p.settle("n", 1, time.Time{})
			p.addChange("n", flipOf("a"))
			p.addChange("n", gate.Everything())
		}, true},
		"other gates since":       {func(p *partials) { p.settle("n", 1, time.Time{}); p.reset(2); p.addChange("n", flipOf("a")) }, true},
		"by other gates, late":    {func(p *partials) { p.reset(2); p.settle("n", 1, time.Time{}); p.addChange("n", flipOf("a")) }, true},
		"another of its name":     {func(p *partials) { p.settle("n", 1, time.Time{}); p.forget("n"); p.addChange("n", flipOf("a")) }, true},
		"taken up, and not rests": {func(p *partials) { p.settle("n", 1, time.Time{}); p.take("n", 1, now); p.addChange("n", flipOf("a")) }, true},
		"another node rests":      {func(p *partials) { p.settle("m", 1, time.Time{}); p.addChange("n", flipOf("a")) }, true},
	} {
		p := newPartials()
		p.reset(1)
		test.before(p)
		if change, _ := p.take("n", p.seq, now); change.IsEverything() != test.whole {
			t.Errorf("%s: everything is looked at: %v", name, change.IsEverything())
		}
		if len(p.changes) > 0 {
			t.Errorf("%s: what was taken up is told still: %v", name, p.changes)
		}
	}
}

// conditionGate closes under no budget as soon as a condition is not True, and has a
// taint of its own, if not this one.
func conditionGate(name, condition string, change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	return controllertest.Gate(name, append([]func(*v1alpha1.NodeGateSpec){func(s *v1alpha1.NodeGateSpec) {
		s.Taint.Key = "test.nodegate.dev/" + name
		s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: condition, Status: "True"}}
		s.Budget.MaxReclosed = ptr.To(intstr.FromString("100%"))
	}}, change...)...)
}

// notifyingWriter is a writer who tells of what it has written, as a feed does.
type notifyingWriter struct{ *world }

func (w notifyingWriter) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	_, err := w.world.Apply(ctx, n, d)
	if err == nil {
		w.c.NodeChanged(n.Name, written(n, d))
	}
	return nil, err
}

// written is what a write changes.
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

// edit changes a node and tells what of it.
func (w *world) edit(name string, what gate.Change, change func(*gate.Node)) {
	w.mu.Lock()
	node := w.nodes[name]
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

// reading counts how often a gate's signal is read.
type reading struct {
	gate.Signal
	times *atomic.Int32
}

func (s reading) Read(in gate.Input) gate.Reading { s.times.Add(1); return s.Signal.Read(in) }

// countReads has the controller count, by gate, how often signals are read.
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

// A condition flips: the gate that looks at it closes, is told of, and opens again, and
// no other gate is so much as looked at, though another has something to wait for.
func TestOnlyGatesThatLookAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(s *v1alpha1.NodeGateSpec) { s.Timing.CloseAfterSeconds = ptr.To[int32](60) }
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
		reads, start := countReads(w.c), w.reads
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
		if n := w.reads - start; n != 4 { // each time one for the flip, and one for what was written
			t.Errorf("looked %d times, want 4", n)
		}
		if due := w.c.partials.settled["n0000"]; due.IsZero() || time.Until(due) > time.Minute {
			t.Errorf("the time of what is at rest was forgotten: %s", due)
		}
		before := reads["disk"].Load()
		w.edit("n0000", flipOf("Nobody's"), func(*gate.Node) {})
		if wantStates("disk=Open"); reads["disk"].Load() != before {
			t.Error("a gate was read for what nobody reads at")
		}
		controllertest.Pass(time.Minute) // what has been waiting since before
		if s := reportsOrNil(w.c.gateReports("n0000")); s[2].Gate != "slow" || s[2].State != v1alpha1.StateClosed {
			t.Errorf("what was at rest has missed its time: %+v", s)
		}
	})
}

func reportsOrNil(all []gateReport, ok bool) []gateReport {
	if !ok {
		return nil
	}
	return all
}

// chaosGates share taints here and there.
func chaosGates() []*v1alpha1.NodeGate {
	sharing := func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/shared" }
	damped := func(s *v1alpha1.NodeGateSpec) {
		s.Timing.CloseAfterSeconds, s.Timing.OpenAfterSeconds = ptr.To[int32](40), 20
	}
	follows := func(s *v1alpha1.NodeGateSpec) {
		*s = v1alpha1.NodeGateSpec{Taint: s.Taint, CloseWhen: s.OpenWhen, Budget: s.Budget}
	}
	return []*v1alpha1.NodeGate{
		conditionGate("damped", "A", damped), conditionGate("one", "B", sharing), conditionGate("other", "C", sharing),
		conditionGate("plain", "B"), conditionGate("follows", "C", follows), controllertest.Gate("labelled"),
	}
}

// chaosNodes are a few nodes on which all that chaosGates look at is as it should be.
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

// chaos does something to a world, and the same to another by the same dice.
func (w *world) chaos(dice *rand.Rand, precise bool) {
	node := fmt.Sprintf("n%04d", dice.IntN(5))
	status := []corev1.ConditionStatus{"True", "False", "Unknown"}[dice.IntN(3)]
	told := func(c gate.Change) gate.Change {
		if precise {
			return c
		}
		return gate.Everything()
	}
	aspect := func(kind gate.AspectKind, name string) gate.Change {
		return told(gate.ChangeOf(gate.Aspect{Kind: kind, Name: name}))
	}
	switch at := dice.IntN(12); at {
	case 0, 1, 2, 3, 4, 5:
		w.edit(node, told(flipOf([]string{"A", "B", "C"}[at%3])), setCondition(1+at%3, status))
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
		var tries atomic.Int32 // by workers side by side
		w.mu.Lock()
		w.fail = func(string) error {
			if tries.Add(1) <= failures {
				return errors.New("the API server is away")
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

// stands tells how all gates stand on all nodes: by their records, by the taints, and by
// what the controller tells.
func (w *world) states() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		for gateName, raw := range w.nodes[name].Records {
			r, _ := gate.ParseRecord(raw)
			all = append(all, fmt.Sprint(name, " ", gateName, ": ", r.State, " ", r.Reason, " ", r.Taint))
		}
		for _, t := range w.nodes[name].Taints {
			all = append(all, fmt.Sprint(name, " carries ", t.Key))
		}
		told, _ := w.c.gateReports(name)
		for _, a := range told {
			all = append(all, fmt.Sprintf("%s %s is told to be %s %s, waiting: %v", name, a.Gate, a.State, a.Reason, a.Waiting != nil))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// A fleet about which little is decided at a time comes to stand as one does of which
// everything is decided about each time, whatever happens to it.
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
				states[i], reads[i] = w.states(), w.fullReads
			})
		}
		if states[0] != states[1] {
			t.Fatalf("seed %d: by parts\n%s\n\nas a whole\n%s", seed, states[0], states[1])
		}
		if reads[0] >= reads[1] {
			t.Errorf("seed %d: %d reads at everything, and %d where everything was told", seed, reads[0], reads[1])
		}
	}
}
