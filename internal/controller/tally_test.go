// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// register is what a tally should know, in the dumbest way: each standing as it is.
type register map[string]map[string]standing // by node and gate

// named are the nodes on which a gate stands so, told as a summary tells of them.
func (r register) named(gateName string, so func(*standing) bool) (names few) {
	for node, all := range r {
		s, under := all[gateName]
		names.addIf(under && so(&s), node)
	}
	return names
}

// on is how a gate stands on the first of these nodes, if there is one.
func (r register) on(gateName string, names few) (s standing) {
	if names.count > 0 {
		s = r[names.first[0]][gateName]
	}
	return s
}

func (r register) summary(gateName string) *summary {
	named := func(so func(*standing) bool) few { return r.named(gateName, so) }
	count := func(so func(*standing) bool) int32 { return int32(named(so).count) }
	isClosed := func(s *standing) bool { return s.state == v1alpha1.StateClosed }
	out := &summary{
		waitsFor:   map[string]int{},
		throttled:  named(func(s *standing) bool { return s.throttled }),
		contended:  named(func(s *standing) bool { return s.contended }),
		denied:     named(func(s *standing) bool { return s.denied != "" }),
		outside:    named(func(s *standing) bool { return s.selected && s.state == "" }),
		doubtful:   named(func(s *standing) bool { return s.doubt != "" }),
		overridden: named(func(s *standing) bool { return s.override != "" }),
		ignored:    named(func(s *standing) bool { return s.ignored != "" }),
		overdue:    named(func(s *standing) bool { return s.overdue && isClosed(s) }),
		lapsed:     named((*standing).lapsed),
	}
	out.counts = v1alpha1.NodeCounts{
		Selected: count(func(s *standing) bool { return s.selected }), Closed: count(isClosed),
		Open:    count(func(s *standing) bool { return s.state == v1alpha1.StateOpen }),
		Overdue: int32(out.overdue.count), Overridden: int32(out.overridden.count),
	}
	out.denial, out.ignoredWhy, out.doubt = r.on(gateName, out.denied).denied, r.on(gateName, out.ignored).ignored, r.on(gateName, out.doubtful).doubt
	if out.overdue.count > 0 {
		first := waiting(out.overdue.first[0], r.on(gateName, out.overdue))
		out.overdueFor = fmt.Sprintf("%s waits for signal %s: %s", first.Node, cmp.Or(first.Signal, "-"), first.Message)
	}
	var lost []string
	for _, node := range out.throttled.first {
		if s := r[node][gateName]; s.signal != "" {
			lost = append(lost, fmt.Sprintf("%s: signal %s: %s", node, s.signal, s.reading.Message()))
		}
	}
	out.lost = strings.Join(lost, "; ")
	for node, all := range r {
		if s := all[gateName]; isClosed(&s) {
			out.waitsFor[s.signal]++
			out.waiting = append(out.waiting, waiting(node, s))
		}
	}
	slices.SortFunc(out.waiting, func(a, b v1alpha1.WaitingNode) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	out.waiting = out.waiting[:min(len(out.waiting), waitingMax)]
	return out
}

// drawStanding draws how a gate stands on a node: few values of each, so that nodes
// stand alike now and then, and in any combination.
func drawStanding(t *rapid.T, gateName string) standing {
	flag := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	text := func(name string, of ...string) string { return rapid.SampledFrom(append(of, "", "")).Draw(t, name) }
	s := standing{
		gate: gateName, selected: !flag("deselected"), zone: text("zone", "a", "b"), signal: text("signal", "agent", "network"),
		state:     rapid.SampledFrom([]string{"", v1alpha1.StateOpen, v1alpha1.StateClosed, v1alpha1.StateClosed}).Draw(t, "state"),
		reason:    v1alpha1.Reason(text("reason", string(v1alpha1.ReasonDeadlinePassed), string(v1alpha1.ReasonRegression))),
		since:     time.Unix(rapid.Int64Range(0, 20).Draw(t, "since"), 0).UTC(),
		throttled: flag("throttled"), contended: flag("contended"), overdue: flag("overdue"), stranger: flag("stranger"),
		doubt: text("doubt", "it is not known", "nor is this"), ignored: text("ignored", "no", "nor this"), denied: text("denied", "never", "nor now"),
		override: text("override", v1alpha1.StateOpen), reading: gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady, Subject: text("subject", "pod-1", "pod-2")},
	}
	if flag("no pod") {
		s.reading.Reason = v1alpha1.ReadingPodMissing
	}
	if flag("blocked") {
		s.blocked = gate.Reading{Reason: v1alpha1.ReadingMinClosed, Subject: text("until", "tomorrow", "the day after")}
	}
	return s
}

// Whatever happens to nodes, what is told of them is what would be told if every
// standing were kept as it is, and nothing is kept of nodes that are gone.
func TestTallyAgainstARegister(t *testing.T) {
	names := []string{"a", "b", "c"} // of gates
	rapid.Check(t, func(t *rapid.T) {
		tally, all := newTally(), register{}
		node := func() string { return fmt.Sprint("n", rapid.IntRange(1, 14).Draw(t, "node")) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { tells(t, tally, all, names) },
			"look": func(t *rapid.T) {
				name, under := node(), map[string]standing{}
				for _, gateName := range names {
					if rapid.Bool().Draw(t, "under "+gateName) {
						under[gateName] = drawStanding(t, gateName)
					}
				}
				all[name] = under
				tally.set(name, inOrder(under), 1)
			},
			"look again": func(*rapid.T) {
				name := node()
				if under, known := all[name]; known {
					tally.note(name, inOrder(under), 2)
				}
			},
			"go": func(*rapid.T) {
				name := node()
				delete(all, name)
				tally.forget(name)
			},
		})
		for name := range all {
			tally.forget(name)
		}
		if len(tally.gates)+len(tally.nodes) > 0 {
			t.Errorf("something is kept of nodes that are gone: %+v", tally)
		}
	})
}

func inOrder(under map[string]standing) (all []standing) {
	for _, name := range slices.Sorted(maps.Keys(under)) {
		all = append(all, under[name])
	}
	return all
}

// tells checks all that is told of nodes.
func tells(t *rapid.T, tally *tally, all register, names []string) {
	var strangers few
	for _, name := range names {
		got := *tally.summary(name)
		if want := *all.summary(name); len(got.waitsFor) != 0 || len(want.waitsFor) != 0 {
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("of gate %s is told\n%+v\nwant\n%+v", name, got, want)
			}
		} else if got.waitsFor, want.waitsFor = nil, nil; !reflect.DeepEqual(got, want) {
			t.Fatalf("of gate %s is told\n%+v\nwant\n%+v", name, got, want)
		}
		strangers.addIf(all.named(name, func(s *standing) bool { return s.stranger }).count > 0, name)
	}
	if got := tally.strangers(nil); !reflect.DeepEqual(got, strangers) {
		t.Fatalf("unknown gates are %v, want %v", got, strangers)
	}
	var lacking few
	for node, under := range all {
		a, b := under["a"], under["b"]
		lacking.addIf(a.lacksPod() && b.lacksPod(), node)
		got, known := tally.standings(node)
		if want := inOrder(under); !known || !reflect.DeepEqual(got, want) {
			t.Fatalf("of node %s is told\n%+v\nwant\n%+v", node, got, want)
		}
	}
	if got := tally.lackingPods("a", "b"); !reflect.DeepEqual(got, lacking) {
		t.Fatalf("pods of both gates are missing on %v, want %v", got, lacking)
	}
}

// What is kept of each node is small: on a large fleet there is nothing else of
// which there is so much. Bounds are in bytes for each node, under two gates.
func TestTallyIsSmall(t *testing.T) {
	const fleet = 50_000
	names := make([]string, fleet)
	for i := range names {
		names[i] = fmt.Sprintf("node-%05d.example.com", i)
	}
	for _, test := range []struct {
		name  string
		most  uint64
		state func(i int) standing
	}{
		{"open since various times", 130, func(int) standing {
			return standing{selected: true, state: v1alpha1.StateOpen, reason: v1alpha1.ReasonSignalsHold}
		}},
		{"outside", 130, func(int) standing { return standing{selected: true} }},
		{"closed, and each waits for a pod of its own", 250, func(i int) standing {
			return standing{
				selected: true, state: v1alpha1.StateClosed, reason: v1alpha1.ReasonRegression, signal: "agent",
				reading: gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady, Subject: fmt.Sprintf("kube-system/agent-%05d", i)},
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := liveHeap()
			tally := newTally()
			for i, name := range names {
				s := test.state(i)
				s.zone, s.since = fmt.Sprint("zone-", i%3), time.Unix(int64(i), 0)
				one, other := s, s
				one.gate, other.gate = "one", "other"
				tally.set(name, []standing{one, other}, 1)
			}
			tally.summary("one") // is not kept for each node
			each := (liveHeap() - before) / fleet
			runtime.KeepAlive(tally)
			t.Logf("%d bytes for each node", each)
			if each > test.most {
				t.Errorf("%d bytes are kept for each node, want at most %d", each, test.most)
			}
		})
	}
	runtime.KeepAlive(names)
}

// liveHeap is how many bytes are reachable.
func liveHeap() uint64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
