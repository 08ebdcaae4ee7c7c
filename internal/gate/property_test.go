// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

var gateNames = []string{"flag1", "flag2", "pod1", "pod2"}

// followNames are the names of closeWhen gates; the last one has reopen Manual.
var followNames = []string{"follow1", "follow2", "hand"}

var allNames = slices.Concat(gateNames, followNames)

// history is a sequence of random events on a node under random gates.
type history struct {
	*sim
	all     []Gate // every gate that can exist
	boots   int
	started int // number of containers started
	oracle  oracle
	foreign []corev1.Taint // foreign taints, in order
	// inService is true while no gate has put the node out of service.
	inService bool
}

func newHistory(t *rapid.T, gates []Gate, age time.Duration) *history {
	h := &history{sim: aNode(slices.Clone(gates)...).age(age), all: gates, oracle: oracle{gates: map[string]*memory{}, guests: map[string]string{}}}
	h.facts.Boot.Seen = h.now // a controller knows since when it has observed a boot
	for i := range gates {
		h.restart(gates[i].Name, rapid.Bool().Draw(t, "ready"))
	}
	return h
}

func randomGates(t *rapid.T) []Gate {
	var gates []Gate
	for _, name := range gateNames {
		if !rapid.Bool().Draw(t, "has "+name) {
			continue
		}
		// Each gate has its own key, or one that two gates may share.
		key := rapid.SampledFrom([]string{name + ".example/x", "shared.example/x"}).Draw(t, "key")
		effect := rapid.SampledFrom([]string{"NoSchedule", "NoExecute"}).Draw(t, "effect")
		signals := []Signal{flagSignal(name)}
		if strings.HasPrefix(name, "pod") {
			signals = append(signals, agent(name))
		}
		gates = append(gates, aGate(name, closedForAtLeast(randomHold(t)), soaking(randomSoak(t)), tainting(key+":"+effect), waitingFor(signals...),
			reclosing(rapid.SampledFrom([]v1alpha1.ReclosePolicy{never, onReboot}).Draw(t, "reclose")),
			selecting(rapid.SampledFrom([]string{"", "pool=gpu", "pool!=gpu"}).Draw(t, "selector")), randomReclose(t, name)))
	}
	return gates
}

// randomReclose may give a gate a recloseTaint, which may be another gate's taint or
// recloseTaint.
func randomReclose(t *rapid.T, name string) func(*Gate) {
	if !rapid.Bool().Draw(t, "has another taint") {
		return func(*Gate) {}
	}
	key := rapid.SampledFrom([]string{name + ".example/again", "shared.example/again", "shared.example/x"}).Draw(t, "second key")
	return recloseTainting(key + ":" + rapid.SampledFrom([]string{"NoSchedule", "NoExecute"}).Draw(t, "second effect"))
}

func randomHold(t *rapid.T) time.Duration {
	return time.Duration(rapid.SampledFrom([]int{0, 0, 60, 650}).Draw(t, "minClosed")) * time.Second
}

func randomSoak(t *rapid.T) time.Duration {
	return time.Duration(rapid.SampledFrom([]int{0, 0, 1, 60, 650}).Draw(t, "openAfter")) * time.Second
}

func withDeadlines(t *rapid.T, gates []Gate) []Gate {
	seconds := func(what string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 10, 60, 650}).Draw(t, what)) * time.Second
	}
	for i := range gates {
		gates[i].Deadline = Deadline{PodMissing: seconds("podMissing"), Ready: seconds("ready"), Open: rapid.Bool().Draw(t, "action")}
	}
	return gates
}

func (h *history) restart(name string, ready bool) {
	h.started++
	h.pod(name, fmt.Sprint(h.started), ready)
}

// events returns the possible events. Each is small, so that failures are short.
func (h *history) events() map[string]func(*rapid.T) {
	name := func(t *rapid.T) string { return rapid.SampledFrom(allNames).Draw(t, "gate") }
	n := &h.facts.Node
	return map[string]func(*rapid.T){
		"heartbeat": func(*rapid.T) {},
		"time passes": func(t *rapid.T) {
			h.after(time.Duration(rapid.SampledFrom([]int{1, 9, 59, 60, 61, 599, 601, 4000}).Draw(t, "seconds")) * time.Second)
		},
		"flag":    func(t *rapid.T) { h.flag(name(t), rapid.SampledFrom([]string{"holds", "no", "unknown"}).Draw(t, "is")) },
		"ready":   func(t *rapid.T) { h.ready(rapid.SampledFrom([]string{"True", "False", "Unknown"}).Draw(t, "is")) },
		"reboot":  func(*rapid.T) { h.boots++; h.boot(fmt.Sprint("boot", h.boots)) },
		"restart": func(t *rapid.T) { h.restart(name(t), rapid.Bool().Draw(t, "ready")) },
		"pod flaps": func(t *rapid.T) {
			for _, p := range h.facts.Pods[agent(name(t)).query()] {
				p.Ready = !p.Ready
				h.pods(p.Name, p)
			}
		},
		"pod terminates": func(t *rapid.T) {
			for _, p := range h.facts.Pods[agent(name(t)).query()] {
				p.Terminating = true
				h.pods(p.Name, p)
			}
		},
		"pod is removed": func(t *rapid.T) { h.pods(name(t)) },
		"shutdown":       func(t *rapid.T) { h.shuttingDown(rapid.Bool().Draw(t, "is")) },
		"zone": func(t *rapid.T) {
			nodes := rapid.SampledFrom([]int{2, 10}).Draw(t, "nodes")
			h.zone(nodes, rapid.IntRange(0, nodes).Draw(t, "silent"))
		},
		"relabel":               func(t *rapid.T) { h.label("pool", rapid.SampledFrom([]string{"gpu", "cpu"}).Draw(t, "pool")) },
		"invisible":             func(*rapid.T) { h.gates = nil; h.invisible() },
		"visible":               func(*rapid.T) { h.gates = slices.Clone(h.all); h.facts.CompleteSources = map[string]bool{"crd": true} },
		"set up":                func(*rapid.T) { h.dropForeign("karpenter.sh/unregistered") },
		"is being set up again": func(*rapid.T) { h.addForeign("karpenter.sh/unregistered") },
		"gate deleted": func(t *rapid.T) {
			if h.facts.CompleteSources != nil {
				gone := name(t)
				h.gates = slices.DeleteFunc(slices.Clone(h.gates), func(g Gate) bool { return g.Name == gone })
			}
		},
		"foreign taint": func(t *rapid.T) {
			h.addForeign(rapid.SampledFrom([]string{"x.example/a", "x.example/b"}).Draw(t, "key"))
		},
		"foreign taint is removed": func(t *rapid.T) {
			h.dropForeign(rapid.SampledFrom([]string{"x.example/a", "x.example/b"}).Draw(t, "key"))
		},
		"taint is undone": func(*rapid.T) {
			n.Taints = slices.Clone(h.foreign)
		},
	}
}

func (h *history) addForeign(key string) {
	h.dropForeign(key)
	taint := corev1.Taint{Key: key, Value: h.now.Format("150405"), Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: h.now}}
	h.foreign = append(h.foreign, taint)
	h.facts.Node.Taints = append(slices.Clone(h.facts.Node.Taints), taint)
}

func (h *history) dropForeign(key string) {
	is := func(t corev1.Taint) bool { return t.Key == key }
	h.foreign = slices.DeleteFunc(slices.Clone(h.foreign), is)
	h.facts.Node.Taints = slices.DeleteFunc(slices.Clone(h.facts.Node.Taints), is)
}

// decideAndCheck decides and checks all invariants.
func (h *history) decideAndCheck(t *rapid.T) {
	h.checkOrder(t)
	h.checkRecheck(t, h.decide())
	d := h.run(t)
	h.checkTaints(t, d)
	h.checkStates(t)
	h.checkMasks(t, d)
	if settled := h.decide(); settled.Changes {
		t.Fatalf("not settled")
	} else {
		h.checkRecheck(t, settled)
	}
}

func (h *history) checkOrder(t *rapid.T) {
	shuffled := *h.sim
	shuffled.gates = rapid.Permutation(h.gates).Draw(t, "order")
	if a, b := h.decide(), shuffled.decide(); !reflect.DeepEqual(a, b) {
		t.Fatalf("depends on the order of the gates:\n%s\n%s", show(a), show(b))
	}
}

// checkRecheck checks that a decision does not change before its recheck while the
// facts do not change.
func (h *history) checkRecheck(t *rapid.T, d Decision) {
	if d.Changes {
		return
	}
	if d.Again || !d.Recheck.IsZero() && !d.Recheck.After(h.now) {
		t.Fatalf("is to be repeated: %t, or requests a recheck at %s, but it is %s", d.Again, d.Recheck, h.now)
	}
	until := []time.Time{h.now.Add(time.Second), h.now.Add(time.Minute), h.now.Add(time.Hour), h.now.Add(100 * time.Hour)}
	if !d.Recheck.IsZero() {
		until = append(until, d.Recheck.Add(-1))
	}
	for _, at := range until {
		if !d.Recheck.IsZero() && !at.Before(d.Recheck) {
			continue
		}
		later := *h.sim
		later.remember(d)
		later.now = at
		if l := later.decide(); l.Changes || show(l) != show(d) || !l.Recheck.Equal(d.Recheck) {
			t.Fatalf("changes without a recheck: requested %s\nat %s: %s\nat %s: %s, %s", d.Recheck, h.now, show(d), at, show(l), l.Recheck)
		}
	}
}

func (h *history) checkTaints(t *rapid.T, d Decision) {
	var foreign, own []corev1.Taint
	for _, taint := range h.facts.Node.Taints {
		if strings.HasPrefix(taint.Key, "x.") || strings.HasPrefix(taint.Key, "karpenter") {
			foreign = append(foreign, taint)
		} else {
			own = append(own, taint)
		}
	}
	if len(foreign)+len(h.foreign) > 0 && !reflect.DeepEqual(foreign, h.foreign) {
		t.Fatalf("foreign taints are %v, but were %v", foreign, h.foreign)
	}
	owned := map[string]bool{}
	for _, v := range d.Verdicts {
		if v.After != v1alpha1.StateClosed {
			continue
		}
		r, _ := ParseRecord(h.facts.Node.Records[v.Gate])
		text := r.Taint
		owned[text] = true
		if !v.Contended && !v.Held && v.Leaves.IsZero() && !slices.Contains(taintList(&h.facts.Node), text) {
			t.Fatalf("%s is closed without its taint: %s", v.Gate, show(d))
		}
	}
	for _, taint := range own {
		text := coreText(taint)
		contended := slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.Contended })
		if !owned[text] && !contended {
			t.Fatalf("no gate accounts for %s: %s", text, show(d))
		}
	}
}

func (h *history) checkStates(t *rapid.T) {
	got, want := map[string]string{}, map[string]string{}
	for name, raw := range h.facts.Node.Records {
		r, err := ParseRecord(raw)
		if err != nil {
			t.Fatal(err)
		}
		if r.Reason == v1alpha1.ReasonOverridden {
			got[name] = "guest"
			continue
		}
		if got[name] = r.State; r.State == v1alpha1.StateClosed {
			got[name] += " with " + r.Taint
		}
		got[name] += r.Override
		if r.Overdue {
			got[name] += ", overdue"
		}
		if r.Reason == v1alpha1.ReasonDeadlinePassed {
			got[name] += ", lapsed"
		}
	}
	for name, m := range h.oracle.gates {
		want[name] = v1alpha1.StateOpen
		if m.closed {
			want[name] = v1alpha1.StateClosed + " with " + m.taint
		}
		want[name] += m.mask
		if m.overdue {
			want[name] += ", overdue"
		}
		if m.lapsed {
			want[name] += ", lapsed"
		}
	}
	for name := range h.oracle.guests {
		want[name] = "guest"
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the records have %v, the oracle %v", got, want)
	}
}

// For any sequence of events, the gates are in the state that the oracle determines,
// and all invariants hold.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := withFollowers(t, withDeadlines(t, randomGates(t)))
		h := newHistory(t, gates, time.Duration(rapid.SampledFrom([]int{0, 300, 100000}).Draw(t, "age"))*time.Second)
		h.granting(followNames...)
		actions := h.events()
		h.overriding(actions)
		actions[""] = func(t *rapid.T) { // runs after each event
			h.oracle.observe(h.sim)
			h.decideAndCheck(t)
		}
		t.Repeat(actions)
	})
}

// The same for gates that close on regression and gates that existing nodes join, with
// grants: all invariants hold, and Unknown closes nothing.
func TestHistoriesWithGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := withDeadlines(t, randomGates(t))
		for i := range gates {
			gates[i].Reclose = onRegression
			gates[i].Existing = rapid.SampledFrom([]v1alpha1.ExistingNodes{"Ignore", "Adopt", "CloseIfIdle", "Close"}).Draw(t, "existing")
		}
		gates = withFollowers(t, gates)
		h := newHistory(t, gates, time.Duration(rapid.SampledFrom([]int{0, 100000}).Draw(t, "age"))*time.Second)
		actions := h.events()
		h.overriding(actions)
		actions["grant"] = func(t *rapid.T) {
			h.granting(rapid.SliceOfDistinct(rapid.SampledFrom(allNames), rapid.ID).Draw(t, "to")...)
		}
		actions["pods are listed"] = func(t *rapid.T) {
			pods := rapid.SampledFrom([]BoundPod{daemonPod, workload, toleratesAll})
			h.listed(rapid.SliceOfN(pods, 0, 2).Draw(t, "pods")...)
		}
		actions["pods are not known"] = func(*rapid.T) { h.unlisted() }
		actions["flag again"] = actions["flag"]
		actions["a rollout"] = func(t *rapid.T) { h.flag(rapid.SampledFrom(gateNames).Draw(t, "gate"), "rollout") }
		actions[""] = func(t *rapid.T) {
			h.checkOrder(t)
			for _, v := range h.decide().Verdicts {
				h.checkFollowing(t, &v)
				lost := slices.ContainsFunc(v.Readings, func(r Reading) bool { return r.State == NotYet })
				h.checkIdle(t, &v)
				h.checkDeadline(t, &v)
				budgeted := v.Reason == v1alpha1.ReasonRegression || v.Reason == v1alpha1.ReasonExisting || v.Reason == v1alpha1.ReasonExistingIdle
				if v.Closed() && budgeted && (!lost || !h.facts.Granted[v.Gate]) {
					t.Fatalf("closes because of Unknown or without a grant: %s", showVerdict(&v))
				}
			}
			h.checkTaints(t, h.run(t))
			h.checkRecheck(t, h.decide())
		}
		t.Repeat(actions)
	})
}

// checkIdle checks that a gate that closes idle nodes closes no other, and opens a node
// for not being idle only just after it closed it for being idle.
func (h *history) checkIdle(t *rapid.T, v *Verdict) {
	has := func(counts func(*BoundPod) bool) bool {
		return h.facts.AllPods != nil && slices.ContainsFunc(h.facts.AllPods.Pods, func(p BoundPod) bool { return counts(&p) })
	}
	works := func(p *BoundPod) bool { return p.Name == workload.Name || p.Name == toleratesAll.Name }
	ifIdle := find(h.all, v.Gate).Existing == v1alpha1.ExistingCloseIfIdle
	switch {
	case v.Closed() && v.Reason == v1alpha1.ReasonExistingIdle && (!ifIdle || h.facts.AllPods == nil || has(works)),
		v.Closed() && v.Reason == v1alpha1.ReasonExisting && ifIdle,
		v.Opened() && v.Reason == v1alpha1.ReasonNotIdle && !has(func(p *BoundPod) bool { return p.Name == workload.Name }):
		t.Fatalf("pods %+v: %s", h.facts.AllPods, showVerdict(v))
	}
}

// checkDeadline checks that a gate that opens by its deadline has one with action Open,
// on a reporting node, and that it does not close because of its signals afterwards.
func (h *history) checkDeadline(t *rapid.T, v *Verdict) {
	t0 := find(h.all, v.Gate).Deadline
	n := &h.facts.Node
	byDeadline := v.Opened() && v.Reason == v1alpha1.ReasonDeadlinePassed
	before, _ := ParseRecord(n.Records[v.Gate])
	switch {
	case byDeadline && (!t0.Open || !t0.isSet() || n.Silent() || n.ShuttingDown),
		v.Overdue && !t0.isSet(),
		v.Closed() && v.Reason == v1alpha1.ReasonRegression && before.Reason == v1alpha1.ReasonDeadlinePassed:
		t.Fatalf("deadline %+v: %s", t0, showVerdict(v))
	}
}

// A node that ran before its gates existed is never closed by gates with existingNodes
// Ignore, unless another writer adds their taint.
func TestExistingNodesAreNeverClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := randomGates(t)
		h := newHistory(t, gates, 11*time.Minute)
		actions := h.events()
		actions[""] = func(t *rapid.T) {
			d := h.run(t)
			if d.Changes || len(h.facts.Node.Records) > 0 || len(h.facts.Node.Taints) != len(h.foreign) {
				t.Fatalf("an existing node is changed: %s", show(d))
			}
		}
		t.Repeat(actions)
	})
}

// A node is written once at its birth, and once at each moment at which gates open.
func TestOneWriteForEachOpeningMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := randomGates(t)
		h := newHistory(t, gates, 0)
		h.run(t)
		writes, moments := 0, 0
		for range rapid.IntRange(1, 12).Draw(t, "moments") {
			h.after(time.Second)
			for _, name := range rapid.SliceOf(rapid.SampledFrom(gateNames)).Draw(t, "hold") {
				h.flag(name, "holds")
				h.restart(name, true)
			}
			opened := false
			for range 3 { // each event may occur several times
				d := h.run(t)
				for i := range d.Verdicts {
					opened = opened || d.Verdicts[i].Opened()
				}
				if d.Changes {
					writes++
				}
			}
			if opened {
				moments++
			}
		}
		if writes != moments {
			t.Fatalf("%d writes for %d opening moments", writes, moments)
		}
	})
}

// For any content of records and taints, decisions settle.
func TestGarbageSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := aNode(withDeadlines(t, randomGates(t))...)
		for i := range s.gates {
			s.gates[i].Accepted = rapid.Bool().Draw(t, "accepted")
		}
		for _, name := range gateNames {
			if rapid.Bool().Draw(t, "recorded") {
				s.raw(name, garbageRecord(t))
			}
			if rapid.Bool().Draw(t, "overridden") {
				s.override(name, rapid.SampledFrom([]string{"Open", "Closed"}).Draw(t, "to"), 90*time.Second)
			}
			if rapid.Bool().Draw(t, "tainted") {
				s.facts.Node.Taints = append(s.facts.Node.Taints, corev1.Taint{
					Key: name + ".example/x", Value: rapid.String().Draw(t, "value"), Effect: corev1.TaintEffectNoSchedule})
			}
		}
		for range 3 {
			s.apply(s.decide()) // an unreadable record may be removed only when another gate's taint is known
			s.run(t)
			s.after(time.Minute)
		}
	})
}

func garbageRecord(t *rapid.T) string {
	if rapid.Bool().Draw(t, "noise") {
		return rapid.String().Draw(t, "record")
	}
	pick := func(texts ...string) string { return rapid.SampledFrom(texts).Draw(t, "field") }
	return fmt.Sprintf(`{"state":%q,"since":%q,"reason":%q,"boot":%q,"bootSeen":%q,"taint":%q,"source":%q,"digest":%q,"fought":%s,"foughtAt":%q,"overdue":%s,"silentSince":%q,"silentSeconds":%s,"override":%q,"overrideSince":%q,"reclosed":%s}`,
		pick("Closed", "Open", "Ajar"), pick("2026-11-20T11:00:00Z", "0001-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "never"),
		pick("Birth", "NodeSilent", "Rebooted", "x"), pick("", "a", "b"),
		pick("0001-01-01T00:00:00Z", "2026-11-20T11:59:59Z", "2999-01-01T00:00:00Z"),
		pick("", "flag1.example/x:NoSchedule", "shared.example/again:NoSchedule", "shared.example/x=v:NoExecute", "bad key=bad value:NoSchedule", "node.kubernetes.io/not-ready:NoSchedule"),
		pick("", "crd", "file:x"), pick("", "*", "zz zz", "* *"), pick("0", "-3", "1", "7", "9000000000000000000"),
		pick("0001-01-01T00:00:00Z", "2026-11-20T11:59:59Z", "2999-01-01T00:00:00Z"), pick("true", "false"),
		pick("0001-01-01T00:00:00Z", "2026-11-20T11:59:59Z", "2999-01-01T00:00:00Z"), pick("-1", "0", "1000000000", "9000000000000000000"),
		pick("", "Open", "Closed", "Ajar"), pick("0001-01-01T00:00:00Z", "2026-11-20T11:59:59Z", "2999-01-01T00:00:00Z"), pick("true", "false"))
}

// Histories of a node whose zone is partitioned, or in which it alone is unreachable.
func TestHistoriesOfAZone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const name = "flag1"
		h := newHistory(t, []Gate{aGate(name, waitingFor(flagSignal(name)), tainting("flag1.example/x:NoSchedule"))}, 0)
		h.flag(name, "holds")
		actions, all := map[string]func(*rapid.T){}, h.events()
		for _, event := range []string{"time passes", "ready", "reboot", "zone", "shutdown"} {
			actions[event] = all[event]
		}
		actions[""] = func(t *rapid.T) { // runs after each event
			h.oracle.observe(h.sim)
			h.decideAndCheck(t)
		}
		t.Repeat(actions)
	})
}
