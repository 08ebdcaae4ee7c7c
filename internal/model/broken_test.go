// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// deciding has the signature of gate.Decide.
type deciding func([]gate.Gate, *gate.Facts, time.Time) gate.Decision

// seeing returns Decide with distorted gates and facts. It modifies copies.
func seeing(distort func(gates []gate.Gate, f *gate.Facts)) deciding {
	return func(gates []gate.Gate, f *gate.Facts, now time.Time) gate.Decision {
		seen := *f
		seen.Node.Records, seen.Node.Conditions = maps.Clone(f.Node.Records), slices.Clone(f.Node.Conditions)
		gates = slices.Clone(gates)
		distort(gates, &seen)
		return gate.Decide(gates, &seen, now)
	}
}

// doing returns Decide with a distorted decision.
func doing(distort func(f *gate.Facts, d *gate.Decision)) deciding {
	return func(gates []gate.Gate, f *gate.Facts, now time.Time) gate.Decision {
		d := gate.Decide(gates, f, now)
		d.Taints, d.Records = slices.Clone(d.Taints), maps.Clone(d.Records)
		distort(f, &d)
		return d
	}
}

func eachRecord(f *gate.Facts, change func(r *gate.Record)) {
	for name, raw := range f.Node.Records {
		if r, err := gate.ParseRecord(raw); err == nil {
			change(&r)
			f.Node.Records[name] = r.String()
		}
	}
}

func eachGate(change func(g *gate.Gate)) deciding {
	return seeing(func(gates []gate.Gate, _ *gate.Facts) {
		for i := range gates {
			change(&gates[i])
		}
	})
}

// oneByOne decides about each gate separately.
func oneByOne(gates []gate.Gate, f *gate.Facts, now time.Time) gate.Decision {
	alone := *f
	alone.Part = true
	var d gate.Decision
	for i := range gates {
		if d = gate.Decide(gates[i:i+1], &alone, now); d.Changes || slices.ContainsFunc(d.Verdicts, func(v gate.Verdict) bool { return v.Wants != "" }) {
			break
		}
	}
	return d
}

// withLastingStartupTaint decides as if taints of other tools were never removed.
func withLastingStartupTaint(gates []gate.Gate, f *gate.Facts, now time.Time) gate.Decision {
	rename := func(taints []corev1.Taint, from, to string) []corev1.Taint {
		out := slices.Clone(taints)
		for i := range out {
			if out[i].Key == from {
				out[i].Key = to
			}
		}
		return out
	}
	seen := *f
	seen.Node.Taints = rename(f.Node.Taints, startupKey, "lasting.example/x")
	d := gate.Decide(gates, &seen, now)
	d.Taints = rename(d.Taints, "lasting.example/x", startupKey)
	return d
}

func withoutFirstTest(patch []byte) []byte {
	var ops []json.RawMessage
	if err := json.Unmarshal(patch, &ops); err != nil {
		panic(err)
	}
	out, err := json.Marshal(ops[1:])
	if err != nil {
		panic(err)
	}
	return out
}

// The model detects broken decisions and patches, each by the rule that is intended for
// it.
func TestBroken(t *testing.T) {
	a := func(changes ...change) gate.Gate { return compile(t, "a", keyA, changes...) }
	b := func(changes ...change) gate.Gate { return compile(t, "b", keyB, changes...) }
	only := func(gates ...gate.Gate) []version { return []version{newVersion("a", gates...)} }
	becomes := func(before, after version) []version { return []version{before, after} }
	waiting := func(left budget) setting { return setting{versions: only(a(byDaemon)), left: left, begin: isOpen("a")} }
	edited := func(changes ...change) setting {
		return setting{versions: becomes(newVersion("a", a(byDaemon)), newVersion("a is edited", a(changes...))), left: budget{edits: 1, reboots: 1, fits: 1, ticks: 1}, begin: isOpen("a")}
	}
	reboots, failing := waiting(budget{reboots: 1, ticks: 1}), waiting(budget{reboots: 1, failures: 1, ticks: 1})
	for name, broken := range map[string]struct {
		rule    string
		decide  deciding
		setting setting
		wire    func([]byte) []byte
	}{
		"forgets which pods are from before a boot": {rule: "stale", setting: reboots, decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			eachRecord(f, func(r *gate.Record) { r.Digest = "" })
			f.Boot.Known = nil
		})},
		"accepts pods that were ready on a former Node": {rule: "stale", setting: waiting(budget{renewals: 1}), decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			if f.Boot.After == "" {
				f.Boot.Known = nil
			}
		})},
		"opens although another replica knew later pods": {rule: "stale", decide: seeing(func(_ []gate.Gate, f *gate.Facts) { f.PodsAt = time.Time{} }),
			setting: setting{versions: only(a(byDaemon)), replicas: 2, left: budget{reboots: 1, crashes: 1}, begin: isOpen("a")}},
		"treats every node as Ready for long": {rule: "stale", setting: failing, decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			f.Node.Conditions[0].Status, f.Node.Conditions[0].Transition = corev1.ConditionTrue, day.time()
			f.Boot.Seen = day.time()
			eachRecord(f, func(r *gate.Record) { r.Since = day.time() })
		})},
		"opens unreachable nodes": {rule: "blocked", setting: failing, decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			f.Node.Conditions[0].Status = corev1.ConditionTrue
			f.Node.ShuttingDown = false
		})},
		"treats every boot as recent": {rule: "long ago", setting: waiting(budget{reboots: 1, crashes: 1, ticks: 3}), decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			eachRecord(f, func(r *gate.Record) { f.Boot = gate.Boot{Seen: now, After: r.Boot} })
		})},
		"excludes a daemon that does not tolerate a startup taint": {rule: "stale", decide: withLastingStartupTaint,
			setting: setting{versions: only(a(byDaemons)), begin: behindStartupTaint}},
		"continues contention across a boot": {rule: "contention", setting: waiting(budget{reboots: 2, writers: 2}), decide: doing(func(f *gate.Facts, d *gate.Decision) {
			if strings.Contains(f.Node.Records["a"], `"fought"`) && !slices.ContainsFunc(f.Node.Taints, isOurs) {
				d.Taints = slices.DeleteFunc(d.Taints, isOurs)
			}
		})},
		"ignores boots":           {rule: "missed", setting: reboots, decide: eachGate(func(g *gate.Gate) { g.Reclose = v1alpha1.RecloseNever })},
		"never opens by signals":  {rule: "stuck", setting: reboots, decide: doing(func(f *gate.Facts, d *gate.Decision) { d.Changes = d.Changes && !d.Opens() })},
		"writes the taint alone":  {rule: "orphan", setting: reboots, decide: doing(func(_ *gate.Facts, d *gate.Decision) { clear(d.Records) })},
		"writes the record alone": {rule: "contention", setting: reboots, decide: doing(func(f *gate.Facts, d *gate.Decision) { d.Taints = f.Node.Taints })},
		"removes foreign taints": {rule: "foreign", setting: reboots, decide: doing(func(_ *gate.Facts, d *gate.Decision) {
			d.Taints = slices.DeleteFunc(d.Taints, func(t corev1.Taint) bool { return !isOurs(t) })
		})},
		"opens when labels are removed": {rule: "flap", setting: waiting(budget{flaps: 1, reboots: 1}), decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			f.LeftSince = map[string]time.Time{"a": long.time()}
		})},
		"treats unread gates as deleted": {rule: "exists", setting: waiting(budget{reboots: 1, crashes: 1}), decide: seeing(func(_ []gate.Gate, f *gate.Facts) {
			f.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
		})},
		"reads one signal only": {rule: "signals", setting: edited(byDaemon, andFit), decide: eachGate(func(g *gate.Gate) { g.Signals = g.Signals[:1] })},
		"acts while paused":     {rule: "paused", setting: edited(byDaemon, inMode(v1alpha1.ModePaused)), decide: eachGate(func(g *gate.Gate) { g.Mode = "" })},
		"acts in dry run":       {rule: "closes", setting: edited(byDaemon, inMode(v1alpha1.ModeDryRun)), decide: eachGate(func(g *gate.Gate) { g.Mode = "" })},
		"leaves the taint from before an edit": {rule: "orphan", setting: edited(byDaemon, evicting), decide: doing(func(f *gate.Facts, d *gate.Decision) {
			for _, t := range f.Node.Taints {
				if !slices.ContainsFunc(d.Taints, func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
					d.Taints = append(d.Taints, t)
				}
			}
		})},
		"evicts for an unobserved boot": {rule: "evicts", decide: eachGate(func(g *gate.Gate) { g.Taint.Effect = corev1.TaintEffectNoSchedule }),
			setting: setting{versions: only(a(byDaemon, evicting)), left: budget{reboots: 1, crashes: 1, ticks: 3}, begin: isOpen("a")}},
		"does not notice that a taint is edited": {rule: "edited", setting: edited(byDaemon, func(spec *v1alpha1.NodeGateSpec) { spec.Taint.Key = keyC }),
			decide: eachGate(func(g *gate.Gate) { g.Taint.Key = keyA })},
		"does not look for rings": {rule: "rest", decide: oneByOne, setting: setting{versions: only(a(whileAbsent(keyB)), b(whilePresent(keyA))), left: budget{ticks: 1}}},
		"closes without budget": {rule: "budget", decide: seeing(func(_ []gate.Gate, f *gate.Facts) { f.Granted = map[string]bool{"a": true} }),
			setting: setting{versions: only(a(byDaemon, onRegression)), nodes: 2, maxReclosed: new(intstr.FromInt32(1)), left: budget{lapses: 2, ticks: 1}, begin: isOpen("a")}},
		"writes to another Node with the same name": {rule: "other", wire: withoutFirstTest,
			setting: setting{versions: becomes(newVersion("none"), newVersion("a", a(byDaemon, closingExisting))), left: budget{edits: 1, renewals: 1, lapses: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := broken.setting
			w.decide, w.wire = broken.decide, broken.wire
			if x := explore(t, &w); x.found[broken.rule] == "" {
				t.Errorf("is not detected by rule %q, but by %v", broken.rule, slices.Sorted(maps.Keys(x.found)))
			}
			w.decide, w.wire = nil, nil
			for _, what := range explore(t, &w).found {
				t.Errorf("is detected although nothing is broken: %s", what)
			}
		})
	}
}
