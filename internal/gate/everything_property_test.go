// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// everything is a node to which all actions of users and other writers happen in
// combination. The oracle of the histories checks the state of each gate; this test
// checks the invariants that hold in any case.
type everything struct {
	history
	policy KeyPolicy
	// theirs contains gates' taints that another writer has added to the node.
	theirs map[string]bool
	// bootOf is the boot in which a pod's current containers were started, or last
	// became ready or not ready. booted is the start of the current boot. known
	// contains the gates that had a record in an earlier boot.
	bootOf map[Incarnation]int
	booted time.Time
	known  map[string]bool
	// overriddenOpen is the time at which an override last kept a closed gate open.
	overriddenOpen map[string]time.Time
}

func newEverything(t *rapid.T) *everything {
	gates := withDeadlines(t, randomGates(t))
	for i := range gates {
		gates[i].Reclose = rapid.SampledFrom([]v1alpha1.ReclosePolicy{never, onReboot, onRegression}).Draw(t, "reclose")
		gates[i].Existing = rapid.SampledFrom([]v1alpha1.ExistingNodes{"Ignore", "Adopt", "CloseIfIdle", "Close"}).Draw(t, "existing")
	}
	gates = withFollowers(t, gates)
	w := &everything{
		history: *newHistory(t, gates, time.Duration(rapid.SampledFrom([]int{0, 300, 100000}).Draw(t, "age"))*time.Second),
		theirs:  map[string]bool{}, bootOf: map[Incarnation]int{}, known: map[string]bool{}, overriddenOpen: map[string]time.Time{},
	}
	w.granting(allNames...)
	return w
}

// keysOf returns all taint keys that a gate of this name can have, including shared
// ones.
func keysOf(name string) []string {
	return []string{name + ".example/x", name + ".example/y", "shared.example/x", "shared.example/again"}
}

func (w *everything) actions() map[string]func(*rapid.T) {
	actions := w.events()
	w.overriding(actions)
	actions["override again"] = actions["override"]
	reboot := actions["reboot"]
	actions["reboot"] = func(t *rapid.T) {
		for _, name := range allNames {
			r, err := ParseRecord(w.facts.Node.Records[name])
			w.known[name] = err == nil && r.Boot != ""
		}
		reboot(t)
		w.booted = w.now
	}
	edit := func(change func(*rapid.T, *Gate)) func(*rapid.T) {
		return func(t *rapid.T) {
			if len(w.gates) == 0 {
				return
			}
			w.gates = slices.Clone(w.gates)
			g := &w.gates[rapid.IntRange(0, len(w.gates)-1).Draw(t, "edited")]
			change(t, g)
			for i := range w.all { // so that the gate returns unchanged
				if w.all[i].Name == g.Name {
					w.all = slices.Clone(w.all)
					w.all[i] = *g
				}
			}
		}
	}
	actions["mode"] = edit(func(t *rapid.T, g *Gate) {
		g.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused}).Draw(t, "mode")
	})
	actions["taint"] = edit(func(t *rapid.T, g *Gate) { g.Taint = w.drawTaint(t, g.Name) })
	actions["reclose taint"] = edit(func(t *rapid.T, g *Gate) {
		if g.RecloseTaint = (v1alpha1.Taint{}); !g.CloseWhen && rapid.Bool().Draw(t, "has another") {
			g.RecloseTaint = w.drawTaint(t, g.Name)
		}
	})
	actions["policy"] = edit(func(t *rapid.T, g *Gate) {
		g.Reclose = rapid.SampledFrom([]v1alpha1.ReclosePolicy{never, onReboot, onRegression}).Draw(t, "reclose")
		g.OpenAfter, g.MinClosed = randomSoak(t), randomHold(t)
	})
	actions["keys are allowed"] = func(t *rapid.T) {
		w.policy.Allowed = nil
		if rapid.Bool().Draw(t, "only some") {
			w.policy.Allowed = AllowedTaints{}
			for _, name := range allNames {
				for _, key := range keysOf(name) {
					for _, effect := range effects {
						w.policy.Allowed[TaintID{key, effect}] = rapid.IntRange(0, 3).Draw(t, key) > 0
					}
				}
			}
		}
		w.facts.Allowed = w.policy.Allowed
	}
	actions["another writer adds a taint"] = func(t *rapid.T) {
		taint := w.drawTaint(t, rapid.SampledFrom(allNames).Draw(t, "gate"))
		if n := &w.facts.Node; n.taint(taint.Key, taint.Effect) < 0 {
			w.taint(TaintText(taint))
			w.theirs[TaintText(taint)] = true
		}
	}
	for _, what := range []string{"restart", "pod flaps"} {
		act := actions[what]
		actions[what] = func(t *rapid.T) {
			before := w.facts.Pods
			act(t)
			w.noteStates(before)
		}
	}
	actions["restart of the controller"] = func(*rapid.T) { w.forget() }
	return actions
}

// noteStates records that the current states of pods belong to the current boot.
func (w *everything) noteStates(before map[PodQuery][]Pod) {
	for query, pods := range w.facts.Pods {
		if len(before[query]) != 1 || len(pods) != 1 || before[query][0] != pods[0] {
			for i := range pods {
				w.bootOf[pods[i].Incarnation] = w.boots
			}
		}
	}
}

func (w *everything) drawTaint(t *rapid.T, name string) v1alpha1.Taint {
	return v1alpha1.Taint{
		Key:    rapid.SampledFrom(keysOf(name)).Draw(t, "key"),
		Effect: rapid.SampledFrom([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}).Draw(t, "effect"),
	}
}

// accept marks the gates as accepted in the same way as the controller does.
func (w *everything) accept() {
	w.gates = slices.Clone(w.gates)
	accepted := Accept(w.gates, w.policy)
	for i := range w.gates {
		w.gates[i].Accepted = accepted[w.gates[i].Name].Accepted
	}
}

// TestEverything lets everything happen to a node that users can do.
func TestEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newEverything(t)
		actions := w.actions()
		actions[""] = func(t *rapid.T) {
			w.accept()
			w.checkOrder(t)
			w.live(t)
		}
		t.Repeat(actions)
		w.end(t)
	})
}

// live decides until nothing is left to do, and checks each step.
func (w *everything) live(t *rapid.T) {
	const most = 4
	for step := range most + 1 {
		for _, name := range allNames {
			raw, recorded := w.facts.Node.Records[name]
			if r, err := ParseRecord(raw); err == nil && r.Override == v1alpha1.StateOpen {
				w.overriddenOpen[name] = w.now
			}
			w.known[name] = w.known[name] && recorded // otherwise the node is new to it
		}
		before := *w.sim
		beforeTaints := slices.Clone(w.facts.Node.Taints)
		d := w.decide()
		if step == 0 {
			w.remember(d)
			d = w.decide()
		}
		moves := d.Changes || w.steps(d)
		w.checkStep(t, &before, beforeTaints, d)
		w.apply(d)
		w.checkParts(t, d)
		if !moves {
			w.checkRecheck(t, d)
			return
		}
		if step == most {
			t.Fatalf("never settles: %s", show(d))
		}
	}
}

func (w *everything) checkStep(t *rapid.T, before *sim, beforeTaints []corev1.Taint, d Decision) {
	for text := range w.theirs {
		if !slices.Contains(taintTextList(d.Taints), text) {
			delete(w.theirs, text)
		}
	}
	w.checkForeign(t, beforeTaints, d)
	w.checkAccounted(t, before, d)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		w.checkEvidence(t, before, v)
		if c := v.Closure; c != nil && (c.NewBoot && w.overriddenOpen[v.Gate].After(w.booted) || !c.NewBoot && c.From.Before(w.overriddenOpen[v.Gate])) {
			t.Fatalf("considers pods that started while %s was overridden open, until %s: %+v", v.Gate, w.overriddenOpen[v.Gate], c)
		}
		if v.Closed() && v.Selected && find(w.gates, v.Gate).Mode == v1alpha1.ModePaused {
			t.Fatalf("%s closes while it is paused: %s", v.Gate, show(d))
		}
	}
}

func taintTextList(taints []corev1.Taint) []string { return taintList(&Node{Taints: taints}) }

// checkForeign checks that taints that belong to no gate, or must not be changed, do
// not change.
func (w *everything) checkForeign(t *rapid.T, before []corev1.Taint, d Decision) {
	foreign := func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(slices.Clone(taints), func(taint corev1.Taint) bool {
			return strings.Contains(taint.Key, ".example/") && !strings.HasPrefix(taint.Key, "x.") &&
				(w.policy.Allowed == nil || w.policy.Allowed[TaintID{taint.Key, taint.Effect}])
		})
	}
	if a, b := taintTexts(foreign(before)), taintTexts(foreign(d.Taints)); a != b {
		t.Fatalf("foreign taints changed from %s to %s: %s", a, b, show(d))
	}
}

// checkAccounted checks that a record accounts for every taint that a gate added, and
// that only gates that act add taints.
func (w *everything) checkAccounted(t *rapid.T, before *sim, d Decision) {
	after := *w.sim
	after.apply(d)
	claims := after.claims()
	for _, taint := range d.Taints {
		at := v1alpha1.Taint{Key: taint.Key, Effect: taint.Effect}
		if text := coreText(taint); strings.Contains(text, ".example/") && !strings.HasPrefix(text, "x.") && !claims[at] && !w.theirs[text] {
			t.Fatalf("no record accounts for the taint %s: %s\nrecords %v", text, show(d), after.facts.Node.Records)
		}
		if before.facts.Node.taint(taint.Key, taint.Effect) < 0 && taint.Effect == corev1.TaintEffectNoExecute && taint.TimeAdded == nil {
			t.Fatalf("the taint %s has no timeAdded", coreText(taint))
		}
	}
}

// checkEvidence checks that a gate that opens because of a pod has a pod that was
// started in the current boot, or that has been ready for a minute of it.
func (w *everything) checkEvidence(t *rapid.T, before *sim, v *Verdict) {
	r, err := ParseRecord(before.facts.Node.Records[v.Gate])
	if v.DryRun || err != nil || r.State != v1alpha1.StateClosed || !w.known[v.Gate] || !strings.HasPrefix(v.Gate, "pod") {
		return
	}
	opensBySignals := v.Opened() && v.Overridden == nil && v.Reason == v1alpha1.ReasonSignalsHold && v.After == v1alpha1.StateOpen ||
		v.Overridden != nil && v.Overridden.Own == v1alpha1.StateOpen && v.Overridden.OwnReason == v1alpha1.ReasonSignalsHold && r.State == v1alpha1.StateClosed
	if !opensBySignals || !w.now.Before(w.booted.Add(time.Minute)) {
		return
	}
	for _, p := range w.facts.Pods[agent(v.Gate).query()] {
		if p.Ready && w.bootOf[p.Incarnation] < w.boots {
			t.Fatalf("%s opens for a pod of boot %d in boot %d, which began %s ago: record %+v", v.Gate, w.bootOf[p.Incarnation], w.boots, w.now.Sub(w.booted), r)
		}
	}
}

// end checks that nothing of the gates is left when all of them have been deleted.
func (w *everything) end(t *rapid.T) {
	w.gates, w.facts.Allowed = nil, nil
	w.facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	w.facts.Node.Taints = slices.DeleteFunc(slices.Clone(w.facts.Node.Taints), func(taint corev1.Taint) bool { return w.theirs[coreText(taint)] })
	d := w.decide()
	w.apply(d)
	if len(w.facts.Node.Records) > 0 || !slices.Equal(taintList(&w.facts.Node), taintTextList(w.foreign)) {
		t.Fatalf("all gates are deleted, but %v and %s are left; foreign taints are %s", slices.Sorted(maps.Keys(w.facts.Node.Records)), show(d), fmt.Sprint(w.foreign))
	}
}
