// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// whileTaint is a signal that holds while a taint is, or is not, on the node.
type whileTaint struct {
	text string
	is   bool
}

func (s whileTaint) Read(in Input) Reading {
	if slices.Contains(taintList(&in.Node), s.text) == s.is {
		return Reading{State: Holds}
	}
	return Reading{State: NotYet}
}

func (whileTaint) Evidence(*Facts) ([]Pod, bool) { return nil, true }
func (whileTaint) ProvesBoot() bool              { return false }
func (whileTaint) Needs(*DaemonSets) Needs       { return Needs{Taints: true} }

// whileRecord is a signal that holds depending on another gate's record.
type whileRecord struct {
	gate string
	is   bool
}

func (s whileRecord) Read(in Input) Reading {
	if _, there := in.Node.Annotations[v1alpha1.RecordAnnotationPrefix+s.gate]; there == s.is {
		return Reading{State: Holds}
	}
	return Reading{State: NotYet}
}

func (whileRecord) Evidence(*Facts) ([]Pod, bool) { return nil, true }
func (whileRecord) ProvesBoot() bool              { return false }
func (s whileRecord) Needs(*DaemonSets) Needs {
	return Needs{Annotations: []string{v1alpha1.RecordAnnotationPrefix + s.gate}}
}

func readsWrites(g *Gate) { g.ReadsWrites = true }

func taintOf(name string) string { return name + ".example/not-ready:NoSchedule" }

// closesWithout closes while the other gate's taint is absent.
func closesWithout(name, other string, options ...func(*Gate)) Gate {
	return follower(name, append(options, readsWrites, waitingFor(whileTaint{taintOf(other), false}))...)
}

func closesWith(name, other string, options ...func(*Gate)) Gate {
	return follower(name, append(options, readsWrites, waitingFor(whileTaint{taintOf(other), true}))...)
}

// asking decides like the controller, which grants what a decision requests.
func (s *sim) asking() Decision {
	var wanted []string
	for _, v := range s.granting().decide().Verdicts {
		if v.Wants != "" {
			wanted = append(wanted, v.Gate)
		}
	}
	return s.granting(wanted...).decide()
}

// A ring is also found if each of its gates is granted budget only when it requests it.
func TestRingThatRequestsBudget(t *testing.T) {
	s := aNode(closesWithout("a", "b"), closesWith("b", "a"))
	for range 10 {
		s.applyAnnotated(s.asking())
	}
	if got, want := show(s.asking()), "[] a:Open>Open b:Open>Open"; got != want {
		t.Errorf("settles at %s, want %s", got, want)
	}
}

func TestRings(t *testing.T) {
	for name, c := range map[string]struct {
		gates []Gate
		ring  string
		rest  string // the final decision
	}{
		"two gates that negate each other": {[]Gate{closesWithout("a", "b"), closesWithout("b", "a")}, "a, b", "[] a:Open>Open b:Open>Open"},
		"one gate negates what the other follows": {[]Gate{closesWithout("a", "b"), closesWith("b", "a")}, "a, b",
			"[] a:Open>Open b:Open>Open"},
		"three gates": {[]Gate{closesWithout("a", "c"), closesWith("b", "a"), closesWith("c", "b")}, "a, b, c",
			"[] a:Open>Open b:Open>Open c:Open>Open"},
		"with an unrelated gate": {[]Gate{closesWithout("a", "b"), closesWithout("b", "a"), follower("c")}, "a, b",
			"[c.example/not-ready:NoSchedule] a:Open>Open b:Open>Open c:Closed>Closed(SignalsHold)"},
		"because of each other's record": {[]Gate{
			follower("a", readsWrites, waitingFor(whileRecord{"b", false})), follower("b", readsWrites, waitingFor(whileRecord{"a", false}))}, "a, b",
			"[] a:Open>Open b:Open>Open"},
		"a chain is not a ring": {[]Gate{closesWith("a", "b"), closesWith("b", "c"), follower("c")}, "",
			"[c.example/not-ready:NoSchedule b.example/not-ready:NoSchedule a.example/not-ready:NoSchedule] a:Closed>Closed(SignalsHold) b:Closed>Closed(SignalsHold) c:Closed>Closed(SignalsHold)"},
		"two gates that follow each other are not a ring": {[]Gate{closesWith("a", "b"), closesWith("b", "a")}, "", "[] a:Open>Open b:Open>Open"},
		"in dry run": {[]Gate{closesWithout("a", "b", inDryRun), closesWithout("b", "a", inDryRun)}, "a, b",
			"[] a:Open>Open dry b:Open>Open dry"},
	} {
		t.Run(name, func(t *testing.T) {
			s := aNode(c.gates...).granting("a", "b", "c").flag("c", "holds")
			var d Decision
			for range 2*len(c.gates) + 2 {
				d = s.decide()
				s.applyAnnotated(d)
			}
			if got := show(d); got != c.rest {
				t.Errorf("settles at %s, want %s", got, c.rest)
			}
			for _, v := range d.Verdicts {
				want := ""
				if strings.Contains(c.ring, v.Gate) {
					want = c.ring
				}
				if v.Ring != want {
					t.Errorf("gate %s is in the ring %q, want %q", v.Gate, v.Ring, want)
				}
			}
		})
	}
}

// applyAnnotated applies a decision and makes its annotations visible to signals.
func (s *sim) applyAnnotated(d Decision) {
	after := s.facts.after(&d)
	s.apply(d)
	s.facts.Node.Annotations = after.Node.Annotations
}

// While gates contradict each other, a new node is still closed, and a closed node does
// not open.
func TestRingsHoldWhatIsClosed(t *testing.T) {
	a := aGate("a", readsWrites, reclosing(onRegression), waitingFor(whileTaint{taintOf("b"), true}), func(g *Gate) { g.CloseAfter = 0 })
	b := closesWith("b", "a")
	s := aNode(a, b).age(time.Second).granting("a", "b")
	if d := s.decide(); taintTexts(d.Taints) != "["+taintOf("a")+"]" {
		t.Errorf("at birth: %s", show(d))
	}
	s.apply(s.decide())
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens: %s", show(d))
	}
}

// Gates that contradict each other act again when one of them is fixed.
func TestRingIsFixed(t *testing.T) {
	s := aNode(closesWithout("a", "b"), closesWithout("b", "a")).granting("a", "b")
	s.run(t)
	s.gates[1] = follower("b")
	if got, want := show(s.run(t)), "write ["+taintOf("a")+"] a:Open>Closed(SignalsHold) b:Open>Open"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Whatever gates read of each other, decisions settle if nothing else changes on the
// node.
func TestGatesSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "gates")]
		s := aNode()
		for _, name := range names {
			var signals []Signal
			for i := range rapid.IntRange(1, 2).Draw(t, "signals") {
				other := rapid.SampledFrom(names).Draw(t, fmt.Sprint("looks at ", i))
				is := rapid.Bool().Draw(t, "is")
				signals = append(signals, rapid.SampledFrom([]Signal{whileTaint{taintOf(other), is}, whileRecord{other, is}}).Draw(t, "signal"))
			}
			g := aGate(name, readsWrites, waitingFor(signals...))
			g.CloseAfter = 0
			if g.CloseWhen = rapid.Bool().Draw(t, "follows"); !g.CloseWhen {
				g.Reclose = rapid.SampledFrom([]v1alpha1.ReclosePolicy{never, onReboot, onRegression}).Draw(t, "reclose")
				g.Existing = rapid.SampledFrom([]v1alpha1.ExistingNodes{"Ignore", "Adopt", "Close"}).Draw(t, "existing")
			}
			g.Mode = rapid.SampledFrom([]v1alpha1.Mode{"", "", v1alpha1.ModeDryRun}).Draw(t, "mode")
			s.gates = append(s.gates, g)
		}
		s.age(rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "age"))
		decide := s.asking
		if rapid.Bool().Draw(t, "all is granted") {
			s.granting(names...)
			decide = s.decide
		}
		s.facts.Node.Annotations = map[string]string{}
		for range 6*len(names) + 6 {
			d := decide()
			if !s.facts.moves(&d) {
				return
			}
			s.applyAnnotated(d)
		}
		t.Fatalf("does not settle: %s", show(s.decide()))
	})
}
