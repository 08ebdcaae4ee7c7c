// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// chaos is a node in any state that users and other writers can cause, with gates of
// all kinds as the controller compiles and accepts them.
type chaos struct {
	*sim
	policy KeyPolicy
}

var (
	chaosKeys    = []string{"a.example/x", "b.example/x", v1alpha1.TaintOutOfService}
	chaosForeign = []string{"x.example/a", "karpenter.sh/unregistered", "node.kubernetes.io/unreachable", v1alpha1.TaintCloudShutdown}
	chaosNames   = []string{"p", "q", "r", "s"} // some of them are not gates
	chaosReasons = []v1alpha1.Reason{v1alpha1.ReasonBirth, v1alpha1.ReasonRebooted, v1alpha1.ReasonNodeSilent, v1alpha1.ReasonNodeShutdown,
		v1alpha1.ReasonRegression, v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle, v1alpha1.ReasonSignalsHold,
		v1alpha1.ReasonAdopted, v1alpha1.ReasonOpenedByHand, v1alpha1.ReasonOverridden, v1alpha1.ReasonOverrideEnded, "Nonsense"}
)

func drawChaosTaint(t *rapid.T, keys []string) v1alpha1.Taint {
	return v1alpha1.Taint{
		Key:    rapid.SampledFrom(keys).Draw(t, "key"),
		Value:  rapid.SampledFrom([]string{"", "", "v"}).Draw(t, "value"),
		Effect: rapid.SampledFrom([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}).Draw(t, "effect"),
	}
}

func drawChaos(t *rapid.T) *chaos {
	c := &chaos{sim: aNode()}
	if rapid.Bool().Draw(t, "some keys are not allowed") {
		c.policy.Allowed = AllowedTaints{}
		for _, key := range chaosKeys {
			for _, effect := range effects {
				c.policy.Allowed[TaintID{key, effect}] = rapid.Bool().Draw(t, key)
			}
		}
	}
	c.facts.Allowed = c.policy.Allowed
	c.drawGates(t)
	c.drawNode(t)
	for _, name := range chaosNames {
		c.drawRecord(t, name)
		switch rapid.IntRange(0, 9).Draw(t, "override of "+name) {
		case 0, 1:
			c.override(name, "Open", drawLast(t))
		case 2, 3:
			c.override(name, "Closed", drawLast(t))
		case 4:
			c.overrideRaw(name, "")
		}
	}
	c.drawRest(t)
	return c
}

func drawLast(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Minute, OverrideMax, 2 * OverrideMax}).Draw(t, "for")
}

func (c *chaos) drawGates(t *rapid.T) {
	c.gates = nil
	for _, name := range chaosNames[:rapid.IntRange(0, 3).Draw(t, "gates")] {
		g := aGate(name, waitingFor(flagSignal(name), agent(name)), createdAgo(rapid.SampledFrom([]time.Duration{0, time.Hour, 100 * time.Hour}).Draw(t, "created")))
		g.Taint = drawChaosTaint(t, chaosKeys)
		if rapid.Bool().Draw(t, "has another taint") {
			g.RecloseTaint = drawChaosTaint(t, chaosKeys)
		}
		g.Selector = rapid.SampledFrom([]func() Gate{func() Gate { return aGate("") }, func() Gate { return aGate("", selecting("pool=gpu")) }}).Draw(t, "selector")().Selector
		if !g.detaches() { // the API rejects it
			g.MinClosed = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "minClosed")
		}
		g.Stamp = rapid.SampledFrom([]string{"", "example.com/at"}).Draw(t, "stamp")
		g.MayDetach = rapid.Bool().Draw(t, "may detach")
		g.Source = rapid.SampledFrom([]string{v1alpha1.SourceCRD, v1alpha1.SourceFiles}).Draw(t, "source")
		if g.CloseWhen = rapid.Bool().Draw(t, "follows"); g.CloseWhen {
			g.Manual = rapid.Bool().Draw(t, "manual")
		} else {
			g.Reclose = rapid.SampledFrom([]v1alpha1.ReclosePolicy{v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot, v1alpha1.RecloseOnRegression}).Draw(t, "reclose")
			g.Existing = rapid.SampledFrom([]v1alpha1.ExistingNodes{v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingCloseIfIdle, v1alpha1.ExistingClose}).Draw(t, "existing")
		}
		g.Mode = rapid.SampledFrom([]v1alpha1.Mode{"", "", v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused}).Draw(t, "mode")
		if rapid.IntRange(0, 9).Draw(t, "compiles") == 0 {
			g.Signals = nil
		}
		c.gates = append(c.gates, g)
	}
	accepted := Accept(c.gates, c.policy)
	for i := range c.gates {
		g := &c.gates[i]
		g.Broken = rapid.IntRange(0, 9).Draw(t, "broken") == 0
		g.Accepted = accepted[g.Name].Accepted && !g.Broken && len(g.Signals) > 0
	}
}

func (c *chaos) drawNode(t *rapid.T) {
	n := &c.facts.Node
	c.age(rapid.SampledFrom([]time.Duration{-time.Minute, time.Second, 9 * time.Minute, 24 * time.Hour}).Draw(t, "age"))
	n.BootID = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "boot")
	c.facts.Boot.Seen = c.now
	c.label(v1alpha1.OptOutLabel, rapid.SampledFrom([]string{"", "", "", "true"}).Draw(t, "out"))
	c.label("pool", rapid.SampledFrom([]string{"gpu", "cpu"}).Draw(t, "pool"))
	c.ready(rapid.SampledFrom([]string{"", "True", "False", "Unknown"}).Draw(t, "ready"))
	if len(n.Conditions) > 0 {
		n.Conditions[0].Transition = c.now.Add(-rapid.SampledFrom([]time.Duration{-time.Hour, 0, 4 * time.Second, time.Minute, time.Hour}).Draw(t, "since"))
	}
	n.ShuttingDown = rapid.IntRange(0, 4).Draw(t, "shutting down") == 0
	c.zone(rapid.SampledFrom([]int{1, 10}).Draw(t, "nodes"), rapid.SampledFrom([]int{0, 1, 9}).Draw(t, "silent"))
	for range rapid.IntRange(0, 5).Draw(t, "taints") {
		taint := drawChaosTaint(t, append(slices.Clone(chaosKeys), chaosForeign...))
		if n.taint(taint.Key, taint.Effect) < 0 {
			c.taint(TaintText(taint))
		}
	}
	for _, name := range chaosNames {
		c.flag(name, rapid.SampledFrom([]string{"holds", "no", "unknown", "rollout"}).Draw(t, name))
		switch rapid.IntRange(0, 3).Draw(t, "pod") {
		case 0: // not observed
		case 1:
			c.pods(name)
		default:
			c.pod(name, "1", rapid.Bool().Draw(t, "is ready"))
		}
	}
}

func (c *chaos) drawRecord(t *rapid.T, name string) {
	kind := rapid.IntRange(0, 9).Draw(t, "record of "+name)
	if kind == 0 {
		c.raw(name, rapid.SampledFrom([]string{"", "x", "{}", `{"state":"Closed","taint":"node.kubernetes.io/not-ready:NoSchedule"}`}).Draw(t, "damaged"))
		return
	}
	if kind < 3 {
		return
	}
	c.record(name, rapid.SampledFrom([]string{v1alpha1.StateClosed, v1alpha1.StateOpen}).Draw(t, "state"), func(r *Record) {
		r.Since = c.now.Add(-rapid.SampledFrom([]time.Duration{-time.Hour, -time.Minute, 0, 30 * time.Second, time.Hour, 1000 * time.Hour}).Draw(t, "since"))
		r.Reason = rapid.SampledFrom(chaosReasons).Draw(t, "reason")
		r.Boot = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "boot")
		r.Taint = TaintText(drawChaosTaint(t, chaosKeys))
		r.Reclosed = rapid.Bool().Draw(t, "reclosed")
		r.Source = rapid.SampledFrom([]string{"", v1alpha1.SourceCRD, v1alpha1.SourceFiles}).Draw(t, "source")
		r.Digest = rapid.SampledFrom([]Digest{"", digestAll, Digest(NewIncarnation("pod", []string{"1"}).String())}).Draw(t, "digest")
		r.Override = rapid.SampledFrom([]string{"", "", v1alpha1.StateOpen, v1alpha1.StateClosed}).Draw(t, "override") // if it is the same, the record is damaged
		if r.Override != "" {
			r.OverrideSince = r.Since
		}
		r.Fought = rapid.SampledFrom([]int{-1, 0, 0, 1, 2, 1 << 40}).Draw(t, "fought")
		r.FoughtAt = c.now.Add(-rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Minute, 1000 * time.Hour}).Draw(t, "foughtAt"))
	})
}

func (c *chaos) drawRest(t *rapid.T) {
	c.facts.CompleteSources = map[string]bool{rapid.SampledFrom([]string{v1alpha1.SourceCRD, v1alpha1.SourceFiles}).Draw(t, "source"): rapid.Bool().Draw(t, "complete")}
	c.granting(rapid.SliceOfDistinct(rapid.SampledFrom(chaosNames), rapid.ID).Draw(t, "granted")...)
	c.facts.Lost = map[string][]Lost{}
	for _, name := range chaosNames {
		if rapid.Bool().Draw(t, "lost") {
			c.facts.Lost[name] = []Lost{{Since: c.now.Add(-time.Hour)}, {Since: c.now.Add(-time.Minute), Rollout: true}}
		}
	}
	switch rapid.IntRange(0, 2).Draw(t, "pods are listed") {
	case 1:
		c.listed(daemonPod, mirrorPod)
	case 2:
		c.listed(daemonPod, workload)
	}
}

// In any state of a node, a decision satisfies the invariants, and a few decisions
// later there is nothing left to do.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChaos(t)
		before, beforeTaints := *c.sim, slices.Clone(c.facts.Node.Taints)
		h := history{sim: c.sim}
		h.checkOrder(t)
		d := c.decide()
		c.apply(d)
		c.checkForbidden(t, beforeTaints, d)
		c.checkPaused(t, &before, d)
		c.checkOrphans(t, before.claims(), d)
		c.checkDetaching(t, &before, d)
		c.checkOpenings(t, d)
		c.checkOverrides(t, d)
		c.checkParts(t, d)
		c.checkCalm(t)
	})
}

// checkCalm checks that a node is soon left alone if nothing happens except that time
// passes.
func (c *chaos) checkCalm(t *rapid.T) {
	const most = 5
	writes := 0
	for range 4 * most {
		d := c.decide()
		switch {
		case d.Changes, c.steps(d):
			writes++
			c.apply(d)
		case d.Again:
			t.Fatalf("is to be repeated although nothing has changed: %s", show(d))
		case d.Recheck.IsZero():
			return
		case !d.Recheck.After(c.now):
			t.Fatalf("requests a recheck that is due: %s", show(d))
		default:
			c.remember(d)
			c.now = d.Recheck
		}
		if writes > most {
			t.Fatalf("written %d times although nothing has happened: %s", writes, show(d))
		}
	}
	t.Fatalf("requests rechecks endlessly: %s", show(c.decide()))
}

// checkForbidden checks that taints that belong to no gate, or must not be changed, do
// not change.
func (c *chaos) checkForbidden(t *rapid.T, before []corev1.Taint, d Decision) {
	others := func(taints []corev1.Taint) (all []corev1.Taint) {
		for _, taint := range taints {
			if !slices.Contains(chaosKeys, taint.Key) || c.policy.Allowed != nil && !c.policy.Allowed[TaintID{taint.Key, taint.Effect}] {
				all = append(all, taint)
			}
		}
		return all
	}
	if !reflect.DeepEqual(others(before), others(d.Taints)) {
		t.Fatalf("foreign taints were %s: %s", taintTexts(before), show(d))
	}
	seen := map[string]bool{}
	for _, taint := range d.Taints {
		at := fmt.Sprint(taint.Key, taint.Effect)
		if seen[at] {
			t.Fatalf("two taints with the same key and effect: %s", show(d))
		}
		seen[at] = true
	}
}

// claims returns the taints, by key and effect, that the records of closed gates
// account for.
func (s *sim) claims() map[v1alpha1.Taint]bool {
	all := map[v1alpha1.Taint]bool{}
	for _, raw := range s.facts.Node.Records {
		r, err := ParseRecord(raw)
		if err != nil || !r.tainted() || !r.Since.IsZero() && r.Since.Before(s.facts.Node.Created) {
			continue
		}
		taint, _ := parseTaint(r.Taint)
		taint.Value = ""
		all[taint] = true
	}
	return all
}

// checkOrphans checks that a taint is removed together with the last record that
// accounts for it.
func (c *chaos) checkOrphans(t *rapid.T, before map[v1alpha1.Taint]bool, d Decision) {
	after := c.claims()
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if _, err := ParseRecord(c.facts.Node.Records[v.Gate]); err != nil && v.Blocked == v1alpha1.ReadingPaused {
			return // a paused gate keeps an unreadable record, and the taint that it may account for
		}
	}
	// A node that is about to leave a gate keeps an unreadable record, too.
	kept := func(v Verdict) bool { return v.Contended || v.Held || !v.Leaves.IsZero() }
	for _, taint := range d.Taints {
		at := v1alpha1.Taint{Key: taint.Key, Effect: taint.Effect}
		if before[at] && !after[at] && !slices.ContainsFunc(d.Verdicts, kept) {
			t.Fatalf("no record accounts for the taint %s any longer: %s", coreText(taint), show(d))
		}
	}
}

// checkDetaching checks that a node is put out of service only while it is unreachable,
// and that no gate keeps a reporting node out of service.
func (c *chaos) checkDetaching(t *rapid.T, before *sim, d Decision) {
	if c.facts.Node.Silent() {
		return
	}
	for _, taint := range d.Taints {
		if taint.Key == v1alpha1.TaintOutOfService && before.facts.Node.taint(taint.Key, taint.Effect) < 0 {
			t.Fatalf("a reporting node is put out of service: %s", show(d))
		}
	}
	for name, raw := range c.facts.Node.Records {
		r, err := ParseRecord(raw)
		if err != nil || !r.tainted() || r.Since.Before(c.facts.Node.Created) {
			continue // an unreadable record, or one of a former Node, claims nothing
		}
		if taint := r.RecordedTaint(); taint.Key == v1alpha1.TaintOutOfService && c.policy.Allowed.Allows(taint) && c.facts.Node.taint(taint.Key, taint.Effect) >= 0 {
			t.Fatalf("gate %s keeps a reporting node out of service: %s", name, show(d))
		}
	}
}

// checkOpenings checks that a gate that opens because of its signals is on a reporting
// node, and that its signals hold.
func (c *chaos) checkOpenings(t *rapid.T, d Decision) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Closed() && !c.facts.Granted[v.Gate] && slices.Contains([]v1alpha1.Reason{v1alpha1.ReasonRegression, v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle}, v.Reason) {
			t.Fatalf("gate %s closes without budget: %s", v.Gate, show(d))
		}
		at := slices.IndexFunc(c.gates, func(g Gate) bool { return g.Name == v.Gate })
		if at < 0 || c.gates[at].CloseWhen || !v.Opened() || v.After != v1alpha1.StateOpen || v.Overridden != nil {
			continue
		}
		holds := len(v.Readings) == 2 && v.Readings[0].State == Holds && v.Readings[1].State == Holds
		if n := &c.facts.Node; !holds || n.Silent() || n.ShuttingDown || beingSetUp(n.Taints) {
			t.Fatalf("gate %s opens by signals %v: %s", v.Gate, v.Readings, show(d))
		}
	}
}
