// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// twins is the same node in two worlds with the same events: in the first, all gates
// act; in the second, some are in dry run.
type twins struct {
	history
	second *sim
	tried  map[string]bool
}

func newTwins(t *rapid.T) *twins {
	gates := withDeadlines(t, randomGates(t))
	for i := range gates {
		gates[i].Reclose = rapid.SampledFrom([]v1alpha1.ReclosePolicy{never, onReboot, onRegression}).Draw(t, "reclose")
		gates[i].Existing = rapid.SampledFrom([]v1alpha1.ExistingNodes{"Ignore", "Adopt", "CloseIfIdle", "Close"}).Draw(t, "existing")
	}
	gates = withFollowers(t, gates)
	w := &twins{history: *newHistory(t, gates, time.Duration(rapid.SampledFrom([]int{0, 300, 100000}).Draw(t, "age"))*time.Second), tried: map[string]bool{}}
	second := *w.sim
	w.second = &second
	for _, g := range gates {
		w.tried[g.Name] = rapid.Bool().Draw(t, g.Name+" is in dry run")
	}
	return w
}

func (w *twins) actions() map[string]func(*rapid.T) {
	actions := w.events()
	// A deleted gate's record has a different fate if there is none.
	for _, not := range []string{"gate deleted", "invisible", "visible"} {
		delete(actions, not)
	}
	undo := actions["taint is undone"]
	actions["taint is undone"] = func(t *rapid.T) {
		if w.tried["hand"] { // a user can only open a gate that is closed
			return
		}
		if !w.facts.LeftSince["hand"].IsZero() {
			return // a gate in dry run does not restore the taint before the node is selected again
		}
		undo(t)
		w.second.facts.Node.Taints = slices.Clone(w.foreign)
	}
	actions["grant"] = func(t *rapid.T) {
		w.granting(rapid.SliceOfDistinct(rapid.SampledFrom(allNames), rapid.ID).Draw(t, "to")...)
	}
	actions["pods are listed"] = func(t *rapid.T) {
		w.listed(rapid.SliceOfN(rapid.SampledFrom([]BoundPod{daemonPod, workload, toleratesAll}), 0, 2).Draw(t, "pods")...)
	}
	actions["a rollout"] = func(t *rapid.T) { w.flag(rapid.SampledFrom(gateNames).Draw(t, "gate"), "rollout") }
	actions["edit"] = func(t *rapid.T) {
		if len(w.gates) == 0 {
			return
		}
		w.gates = slices.Clone(w.gates)
		g := &w.gates[rapid.IntRange(0, len(w.gates)-1).Draw(t, "gate")]
		g.Taint.Key = rapid.SampledFrom([]string{g.Name + ".example/x", g.Name + ".example/y"}).Draw(t, "key")
		g.OpenAfter = randomSoak(t)
		g.Selector = rapid.SampledFrom([]labels.Selector{aGate("").Selector, aGate("", selecting("pool=gpu")).Selector}).Draw(t, "selector")
	}
	return actions
}

func (s *sim) own() []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(s.facts.Node.Taints), func(t corev1.Taint) bool {
		return t.Key == "x.example/a" || t.Key == "x.example/b" || t.Key == "karpenter.sh/unregistered"
	})
}

// follow applies the events of the first world to the second.
func (w *twins) follow() {
	own, facts := w.second.own(), w.second.facts
	w.second.now, w.second.facts = w.now, w.facts
	n := &w.second.facts.Node
	n.Records, n.Taints = facts.Node.Records, slices.Concat(w.foreign, own)
	w.second.facts.Lost, w.second.facts.Steady, w.second.facts.Shadow = facts.Lost, facts.Steady, facts.Shadow
	w.second.gates = slices.Clone(w.gates)
	for i := range w.second.gates {
		if g := &w.second.gates[i]; w.tried[g.Name] {
			g.Mode = v1alpha1.ModeDryRun
		}
	}
}

// With the same grants, a dry run goes through the same states for the same reasons and
// at the same times as a gate that acts. It does not affect other gates or the node.
func TestDryRunPredicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t)
		actions := w.actions()
		actions[""] = func(t *rapid.T) {
			w.follow()
			for range 2 {
				real, tried := w.run(t), w.second.run(t)
				if len(real.Verdicts) != len(tried.Verdicts) {
					t.Fatalf("\nenforced %s\n dry run %s", show(real), show(tried))
				}
				for i := range real.Verdicts {
					w.compare(t, real.Verdicts[i], tried.Verdicts[i])
				}
			}
			for name := range w.second.facts.Node.Records {
				if w.tried[name] {
					t.Fatalf("a dry run has left a record of %s", name)
				}
			}
		}
		t.Repeat(actions)
	})
}

// shared reports whether other gates can have the gate's taint.
func (w *twins) shared(name string) bool {
	return slices.ContainsFunc(w.gates, func(g Gate) bool { return g.Name == name && strings.HasPrefix(g.Taint.Key, "shared.") })
}

func (w *twins) compare(t *rapid.T, real, tried Verdict) {
	t.Helper()
	if tried.DryRun != w.tried[tried.Gate] {
		t.Fatalf("in dry run: %t, verdict %s", w.tried[tried.Gate], showVerdict(&tried))
	}
	// A taint that is not there, or that another gate has restored, cannot be
	// contended.
	real.Contended, tried.Contended = false, false
	// A new node may carry the taint only because of another gate with the same taint, which
	// does not add it in dry run.
	if w.shared(real.Gate) {
		real.BornTainted, tried.BornTainted = false, false
	}
	if tried.DryRun {
		real.Closure, tried.DryRun = nil, false // a dry run changes nothing
		had, have := w.facts.Node.Records[real.Gate], tried.Shadow
		if !sameExceptContention(had, have) {
			t.Fatalf("the record is %s\nthe shadow    %s", had, have)
		}
		tried.Shadow = ""
	}
	if !reflect.DeepEqual(real, tried) {
		t.Fatalf("\nenforced %s %+v\n dry run %s %+v", showVerdict(&real), real, showVerdict(&tried), tried)
	}
}

func sameExceptContention(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	ra, errA := ParseRecord(a)
	rb, errB := ParseRecord(b)
	ra.Fought, rb.Fought, ra.FoughtAt, rb.FoughtAt = 0, 0, time.Time{}, time.Time{}
	return errA == nil && errB == nil && ra == rb
}

// In any state of a node, a dry run that starts now predicts what the gate would do if
// it were switched to Enforce now.
func TestDryRunPredictsASwitch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChaos(t)
		if len(c.gates) == 0 {
			return
		}
		c.facts.Allowed = nil // a dry run may use any
		g := &c.gates[0]
		delete(c.facts.Node.Records, g.Name)
		for i := range c.gates { // the first matching gate takes over an orphaned record
			if c.gates[i].Mode == v1alpha1.ModeDryRun {
				c.gates[i].Mode = ""
			}
		}
		g.Mode = v1alpha1.ModeEnforce
		switched := c.decide()
		g.Mode = v1alpha1.ModeDryRun
		predicted := c.decide()
		want, got := verdictOn(switched, g.Name), verdictOn(predicted, g.Name)
		want.Closure, want.DryRun, want.Shadow = nil, got.DryRun, switched.Records[g.Name]
		if c.facts.Node.taint(g.Taint.Key, g.Taint.Effect) >= 0 && g.CloseWhen { // the gate may keep a record for it
			got.Shadow, want.Shadow = "", ""
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("\npredicted %s %+v\n switched %s %+v", show(predicted), got, show(switched), want)
		}
	})
}

func verdictOn(d Decision, name string) Verdict {
	for _, v := range d.Verdicts {
		if v.Gate == name {
			return v
		}
	}
	return Verdict{}
}

// A dry run and its shadow affect neither the node nor the other gates, as if the gate
// did not exist.
func TestDryRunChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChaos(t)
		c.facts.Shadow = map[string]string{}
		bare := *c.sim
		bare.gates = nil
		for _, g := range c.gates {
			if g.Mode != v1alpha1.ModeDryRun {
				bare.gates = append(bare.gates, g)
				continue
			}
			if raw, ok := c.facts.Node.Records[g.Name]; ok {
				c.facts.Shadow[g.Name] = raw
				delete(c.facts.Node.Records, g.Name)
			}
		}
		with, without := c.decide(), bare.decide()
		opens := with.Opens()
		with.Verdicts = slices.DeleteFunc(with.Verdicts, func(v Verdict) bool { return v.DryRun })
		with.Recheck, without.Recheck = time.Time{}, time.Time{}
		with.Settled, without.Settled = false, false // during a dry run, no decision is settled
		with.Again, without.Again = false, false
		for _, d := range []*Decision{&with, &without} {
			maps.DeleteFunc(d.Ignored, func(name, _ string) bool { // overrides of gates that are in dry run or do not exist
				return find(c.gates, name) != nil && find(bare.gates, name) == nil
			})
			if len(d.Ignored) == 0 {
				d.Ignored = nil
			}
		}
		if len(with.Verdicts) == 0 && len(without.Verdicts) == 0 {
			with.Verdicts, without.Verdicts = nil, nil
		}
		if !reflect.DeepEqual(with, without) || opens != without.Opens() {
			t.Fatalf("%s\n   with %s %v\nwithout %s %v", cmp.Diff(without, with), show(with), with.Records, show(without), without.Records)
		}
	})
}

// checkPaused checks that a paused gate keeps its state, except for the out-of-service
// taint on a reporting node.
func (c *chaos) checkPaused(t *rapid.T, before *sim, d Decision) {
	for i := range c.gates {
		g := &c.gates[i]
		r, err := ParseRecord(before.facts.Node.Records[g.Name])
		v := verdictOn(d, g.Name)
		if g.Mode != v1alpha1.ModePaused || v.Reason == v1alpha1.ReasonNodeReturned {
			continue
		}
		if raw, writes := d.Records[g.Name]; writes {
			t.Fatalf("paused gate %s is written to: %q: %s", g.Name, raw, show(d))
		}
		if v.Opened() || v.Closed() {
			t.Fatalf("paused gate %s changes its state: %s", g.Name, show(d))
		}
		taint, _ := parseTaint(r.Taint)
		stale := !r.Since.IsZero() && r.Since.Before(before.facts.Node.Created)
		had := before.facts.Node.taint(taint.Key, taint.Effect) >= 0
		if err == nil && r.tainted() && !stale && had && (&Node{Taints: d.Taints}).taint(taint.Key, taint.Effect) < 0 {
			t.Fatalf("paused gate %s has lost its taint %s: %s", g.Name, r.Taint, show(d))
		}
	}
}

// Once a gate is in dry run, it holds nothing on the node any longer, unless nodegate
// must not change it.
func TestEnteringDryRunOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChaos(t)
		for i := range c.gates {
			c.gates[i].Mode = v1alpha1.ModeDryRun
		}
		held := maps.Clone(c.facts.Node.Records)
		d := c.decide()
		c.apply(d)
		for _, g := range c.gates {
			r, err := ParseRecord(held[g.Name])
			stuck := c.policy.Allowed != nil && (err != nil || !c.policy.Allowed.Allows(r.RecordedTaint()))
			if raw, ok := c.facts.Node.Records[g.Name]; ok && !stuck {
				t.Fatalf("gate %s keeps its record %s: %s", g.Name, raw, show(d))
			}
		}
	})
}

// For any sequence of modes: a closed gate that acts has its taint, a gate in dry run
// has nothing on the node, and no taint remains that no gate accounts for.
func TestSequencesOfModes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t)
		w.granting(allNames...)
		actions := w.events()
		actions["mode"] = func(t *rapid.T) {
			if len(w.gates) == 0 {
				return
			}
			w.gates = slices.Clone(w.gates)
			g := &w.gates[rapid.IntRange(0, len(w.gates)-1).Draw(t, "gate")]
			g.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused}).Draw(t, "mode")
		}
		actions["mode again"] = actions["mode"]
		actions[""] = func(t *rapid.T) {
			w.checkOrder(t)
			for range 3 { // the gate continues as a dry run
				w.apply(w.decide())
			}
			w.checkModes(t, w.run(t))
			w.checkRecheck(t, w.decide())
		}
		t.Repeat(actions)
	})
}

func (w *twins) checkModes(t *rapid.T, d Decision) {
	owned := map[string]bool{}
	contended := w.facts.CompleteSources == nil // another writer's taint stays while the gate is unknown
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		g := find(w.gates, v.Gate)
		raw, recorded := w.facts.Node.Records[v.Gate]
		contended = contended || v.Contended && !v.DryRun
		if v.DryRun != (g != nil && g.Mode == v1alpha1.ModeDryRun) || v.DryRun && recorded {
			t.Fatalf("record %q: %s", raw, show(d))
		}
		if r, err := ParseRecord(raw); recorded && err == nil && r.State == v1alpha1.StateClosed {
			owned[r.Taint] = true
			acts := g != nil && g.Mode != v1alpha1.ModePaused
			if acts && !v.Contended && v.Leaves.IsZero() && !slices.Contains(taintList(&w.facts.Node), r.Taint) {
				t.Fatalf("%s is closed without its taint: %s", v.Gate, show(d))
			}
		}
	}
	for _, taint := range w.own() {
		if !owned[coreText(taint)] && !contended {
			t.Fatalf("no gate accounts for %s: %s", coreText(taint), show(d))
		}
	}
}
