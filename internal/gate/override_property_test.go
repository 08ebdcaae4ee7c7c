// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// overriding adds overrides and opt-outs to a history's events.
func (h *history) overriding(actions map[string]func(*rapid.T)) {
	actions["override"] = func(t *rapid.T) {
		h.override(rapid.SampledFrom(allNames).Draw(t, "gate"), rapid.SampledFrom([]string{"Open", "Closed"}).Draw(t, "state"),
			time.Duration(rapid.SampledFrom([]int{-1, 0, 1, 60, 700, 9000}).Draw(t, "seconds"))*time.Second)
	}
	actions["override ends"] = func(t *rapid.T) { h.endOverride(rapid.SampledFrom(allNames).Draw(t, "gate")) }
	actions["bad override"] = func(t *rapid.T) {
		h.overrideRaw(rapid.SampledFrom(allNames).Draw(t, "gate"), rapid.SampledFrom([]string{"", "{}", "Open",
			`{"state":"Open","until":"2999-01-01T00:00:00Z","reason":"x","uid":"uid-1"}`,
			`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-2"}`}).Draw(t, "text"))
	}
	actions["opt out"] = func(t *rapid.T) {
		h.label(v1alpha1.OptOutLabel, rapid.SampledFrom([]string{"true", "false"}).Draw(t, "out"))
	}
}

// overriddenTo returns the state that an override sets now, or "".
func (s *sim) overriddenTo(name string) string {
	raw, there := s.facts.Node.Overrides[name]
	if !there || len(raw) < 3 || strings.Contains(raw, "2999") || strings.Contains(raw, "uid-2") {
		return ""
	}
	o, _ := ParseOverride(raw)
	if !s.now.Before(o.Until) {
		return ""
	}
	return o.State
}

// optsOut makes the oracle forget a node that has opted out.
func (o *oracle) optsOut(s *sim) bool {
	out := s.facts.Node.Labels["node-restriction.kubernetes.io/nodegate-opt-out"] == "true"
	for i := range s.gates {
		if out {
			delete(o.gates, s.gates[i].Name)
			delete(o.guests, s.gates[i].Name)
		}
	}
	return out
}

// cover applies an override to the gate's own state. If an override that kept a closed
// gate open has ended, the gate closes now. had is the taint that the node had for the
// gate, and first the one that it has as a new member. Both are empty if there is none.
func (o *oracle) cover(s *sim, g *Gate, had, first string) {
	override := s.overriddenTo(g.Name)
	delete(o.guests, g.Name)
	m := o.gates[g.Name]
	if m == nil {
		if override == "Closed" {
			o.guests[g.Name] = againText(g)
		}
		return
	}
	was := m.mask
	if m.mask = ""; override == "Open" && m.closed || override == "Closed" && !m.closed {
		m.mask = override
	}
	if was == "Open" && m.mask == "" && m.closed {
		m.since, m.from = s.now, s.now
		m.forgetDeadline(s)
		if m.anew && !m.good.IsZero() {
			m.good = s.now
		}
	}
	m.chooseTaint(g, had, first, was)
}

// chooseTaint determines the taint. While the node has a taint of the gate, it keeps that
// one, whether the gate's own state, an override or both require it. Otherwise, a new
// member gets its first taint, and any other node the one of a node that was in use.
func (m *memory) chooseTaint(g *Gate, had, first, was string) {
	switch {
	case !m.closed && !m.tainted():
		m.taint = TaintText(g.Taint)
	case had != "":
		m.taint = had
	case first != "":
		m.taint = first
	case m.tainted(), was != "Open":
		m.taint = againText(g)
	}
}

// hadTaint returns the taint that the node has for the gate, or "".
func (o *oracle) hadTaint(name string) string {
	if m := o.gates[name]; m != nil && m.tainted() {
		return m.taint
	}
	return ""
}

func (m *memory) forgetDeadline(s *sim) {
	m.run, m.at, m.quiet, m.overdue = 0, s.now, s.facts.Node.Silent(), false
}

// tainted reports whether the gate has its taint on the node, including the override.
func (m *memory) tainted() bool { return m.mask == "Closed" || m.closed && m.mask == "" }

// checkMasks compares the taints on the node with the oracle's.
func (h *history) checkMasks(t *rapid.T, d Decision) {
	if slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.Contended || v.Held || !v.Leaves.IsZero() }) {
		return
	}
	want := map[string]bool{}
	for _, m := range h.oracle.gates {
		want[m.taint] = want[m.taint] || m.tainted()
	}
	for _, taint := range h.oracle.guests {
		want[taint] = true
	}
	for _, g := range h.all {
		for _, text := range ownTexts(&g) {
			if got := slices.Contains(taintList(&h.facts.Node), text); got != want[text] {
				t.Fatalf("that the taint %s is on the node is %t: %s", text, got, show(d))
			}
		}
	}
}

// An override changes when a gate has its taint on the node, and not which of its two
// taints it is. The events are few, so that they coincide with overrides.
func TestHistoriesOfTwoTaints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const name = "flag1"
		h := newHistory(t, []Gate{aGate(name, tainting("flag1.example/x:NoExecute"), recloseTainting("flag1.example/again:NoSchedule"),
			soaking(randomSoak(t)), selecting(rapid.SampledFrom([]string{"", "pool!=gpu"}).Draw(t, "selector")))}, 0)
		actions, all := map[string]func(*rapid.T){}, h.events()
		for _, event := range []string{"time passes", "ready", "reboot", "shutdown", "relabel"} {
			actions[event] = all[event]
		}
		actions["flag"] = func(t *rapid.T) { h.flag(name, rapid.SampledFrom([]string{"holds", "no"}).Draw(t, "is")) }
		actions["override"] = func(t *rapid.T) {
			h.override(name, rapid.SampledFrom([]string{"Open", "Closed", "Closed"}).Draw(t, "state"), 90*time.Second)
		}
		actions["override ends"] = func(*rapid.T) { h.endOverride(name) }
		actions[""] = func(t *rapid.T) { // runs after each event
			h.oracle.observe(h.sim)
			h.decideAndCheck(t)
		}
		t.Repeat(actions)
	})
}

// checkOverrides checks that overrides are applied, unless the gate must not be closed
// or another gate keeps a common taint.
func (c *chaos) checkOverrides(t *rapid.T, d Decision) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		override, g := c.overriddenTo(v.Gate), find(c.gates, v.Gate)
		if _, ignored := d.Ignored[v.Gate]; !v.Selected || v.Held || !v.Leaves.IsZero() || v.Reason == v1alpha1.ReasonNodeReturned || ignored || d.Withdrawn[v.Gate] != "" || g == nil || v.Reason == v1alpha1.ReasonDryRun {
			continue
		}
		tainted := slices.ContainsFunc(d.Taints, func(t corev1.Taint) bool { return g.owns(t.Key, t.Effect) })
		held := v.Contended || !g.Accepted
		for j := range d.Verdicts {
			held = held || j != i && (d.Verdicts[j].After == v1alpha1.StateClosed || d.Verdicts[j].Held || d.Verdicts[j].Contended)
		}
		switch {
		case override == "Open" && v.After == v1alpha1.StateClosed,
			override == "Closed" && v.After != v1alpha1.StateClosed,
			override == "Open" && tainted && !held && v.After != "" && !v.DryRun,
			override == "Closed" && !tainted && !v.Contended && g.Accepted && !v.DryRun:
			t.Fatalf("gate %s should be %s: %s", v.Gate, override, show(d))
		}
	}
}
