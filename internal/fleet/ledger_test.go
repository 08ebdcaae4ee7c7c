// SPDX-License-Identifier: Apache-2.0

package fleet

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

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// register is what a ledger should know, in the dumbest way: each standing as it is.
type register map[string]map[string]GateState // by node and gate

// named are the nodes on which a gate stands so, told as a summary tells of them.
func (r register) named(gateName string, so func(*GateState) bool) (names NameList) {
	for node, all := range r {
		s, under := all[gateName]
		names.AddIf(under && so(&s), node)
	}
	return names
}

// on is how a gate stands on the first of these nodes, if there is one.
func (r register) on(gateName string, names NameList) (s GateState) {
	if names.Count > 0 {
		s = r[names.First[0]][gateName]
	}
	return s
}

func (r register) summary(gateName string) *Summary {
	named := func(so func(*GateState) bool) NameList { return r.named(gateName, so) }
	count := func(so func(*GateState) bool) int32 { return int32(named(so).Count) }
	isClosed := func(s *GateState) bool { return s.State == v1alpha1.StateClosed }
	out := &Summary{
		WaitsFor:      map[string]int{},
		Throttled:     named(func(s *GateState) bool { return s.Throttled }),
		Contended:     named(func(s *GateState) bool { return s.Contended }),
		Denied:        named(func(s *GateState) bool { return s.Denied != "" }),
		nonMembers:    map[v1alpha1.NonMemberReason]*NameList{},
		Contradicting: named(func(s *GateState) bool { return s.Ring != "" }),
		Doubtful:      named(func(s *GateState) bool { return s.doubt != "" }),
		Overridden:    named(func(s *GateState) bool { return s.Override != "" }),
		Ignored:       named(func(s *GateState) bool { return s.Ignored != "" }),
		Overdue:       named(func(s *GateState) bool { return s.Overdue && isClosed(s) }),
		Lapsed:        named((*GateState).lapsed),
	}
	out.Counts = v1alpha1.NodeCounts{
		Selected: count(func(s *GateState) bool { return s.Selected }), Closed: count(isClosed),
		Open:    count(func(s *GateState) bool { return s.State == v1alpha1.StateOpen }),
		Overdue: int32(out.Overdue.Count), Overridden: int32(out.Overridden.Count),
		NonMembers: count(func(s *GateState) bool { return s.NonMember != "" }),
	}
	for _, why := range []v1alpha1.NonMemberReason{v1alpha1.NonMemberPaused, v1alpha1.NonMemberNotIdle} {
		if nodes := named(func(s *GateState) bool { return s.NonMember == why }); nodes.Count > 0 {
			out.nonMembers[why] = &nodes
		}
	}
	out.Ring = r.on(gateName, out.Contradicting).Ring
	out.Denial, out.IgnoredWhy, out.Doubt = r.on(gateName, out.Denied).Denied, r.on(gateName, out.Ignored).Ignored, r.on(gateName, out.Doubtful).doubt
	if out.Overdue.Count > 0 {
		first := Waiting(out.Overdue.First[0], r.on(gateName, out.Overdue))
		out.OverdueFor = fmt.Sprintf("%s waits for signal %s: %s", first.Node, cmp.Or(first.Signal, "-"), first.Message)
	}
	var lost []string
	for _, node := range out.Throttled.First {
		if s := r[node][gateName]; s.Signal != "" {
			lost = append(lost, fmt.Sprintf("%s: signal %s: %s", node, s.Signal, s.Reading.Message()))
		}
	}
	out.Lost = strings.Join(lost, "; ")
	for node, all := range r {
		if s := all[gateName]; isClosed(&s) {
			out.WaitsFor[s.Signal]++
			out.Waiting = append(out.Waiting, Waiting(node, s))
		}
	}
	slices.SortFunc(out.Waiting, func(a, b v1alpha1.WaitingNode) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	out.Waiting = out.Waiting[:min(len(out.Waiting), WaitingMax)]
	return out
}

// drawStanding draws how a gate stands on a node: few values of each, so that nodes
// stand alike now and then, and in any combination.
func drawStanding(t *rapid.T, gateName string) GateState {
	flag := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	text := func(name string, of ...string) string { return rapid.SampledFrom(append(of, "", "")).Draw(t, name) }
	s := GateState{
		Gate: gateName, Selected: !flag("deselected"), Zone: text("zone", "a", "b"), Signal: text("signal", "agent", "network"),
		State:     rapid.SampledFrom([]string{"", v1alpha1.StateOpen, v1alpha1.StateClosed, v1alpha1.StateClosed}).Draw(t, "state"),
		Reason:    v1alpha1.Reason(text("reason", string(v1alpha1.ReasonDeadlinePassed), string(v1alpha1.ReasonRegression))),
		Since:     time.Unix(rapid.Int64Range(0, 20).Draw(t, "since"), 0).UTC(),
		Throttled: flag("throttled"), Contended: flag("contended"), Overdue: flag("overdue"), Unlisted: flag("stranger"),
		doubt: text("doubt", "it is not known", "nor is this"), Ignored: text("ignored", "no", "nor this"), Denied: text("denied", "never", "nor now"),
		NonMember: v1alpha1.NonMemberReason(text("not a member", string(v1alpha1.NonMemberPaused), string(v1alpha1.NonMemberNotIdle))), Ring: text("ring", "a, b", "b, c"),
		Override: text("override", v1alpha1.StateOpen), Reading: gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady, Subject: text("subject", "pod-1", "pod-2")},
	}
	if flag("no pod") {
		s.Reading.Reason = v1alpha1.ReadingPodMissing
	}
	if flag("blocked") {
		s.Blocked = gate.Reading{Reason: v1alpha1.ReadingMinClosed, Subject: text("until", "tomorrow", "the day after")}
	}
	return s
}

// Whatever happens to nodes, what is told of them is what would be told if every
// standing were kept as it is, and nothing is kept of nodes that are gone.
func TestLedgerAgainstARegister(t *testing.T) {
	names := []string{"a", "b", "c"} // of gates
	rapid.Check(t, func(t *rapid.T) {
		ledger, all := NewLedger(), register{}
		node := func() string { return fmt.Sprint("n", rapid.IntRange(1, 14).Draw(t, "node")) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { tells(t, ledger, all, names) },
			"look": func(t *rapid.T) {
				name, under := node(), map[string]GateState{}
				for _, gateName := range names {
					if rapid.Bool().Draw(t, "under "+gateName) {
						under[gateName] = drawStanding(t, gateName)
					}
				}
				all[name] = under
				ledger.Set(name, inOrder(under), 1)
			},
			"look again": func(*rapid.T) {
				name := node()
				if under, known := all[name]; known {
					ledger.Note(name, inOrder(under), 2)
				}
			},
			"go": func(*rapid.T) {
				name := node()
				delete(all, name)
				ledger.Forget(name)
			},
		})
		for name := range all {
			ledger.Forget(name)
		}
		if len(ledger.gates)+len(ledger.nodes) > 0 {
			t.Errorf("something is kept of nodes that are gone: %+v", ledger)
		}
	})
}

func inOrder(under map[string]GateState) (all []GateState) {
	for _, name := range slices.Sorted(maps.Keys(under)) {
		all = append(all, under[name])
	}
	return all
}

// tells checks all that is told of nodes.
func tells(t *rapid.T, ledger *Ledger, all register, names []string) {
	var strangers NameList
	for _, name := range names {
		everything := gocmp.Exporter(func(reflect.Type) bool { return true })
		if diff := gocmp.Diff(all.summary(name), ledger.Summary(name), everything, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("of gate %s is told (-want +got):\n%s", name, diff)
		}
		strangers.AddIf(all.named(name, func(s *GateState) bool { return s.Unlisted }).Count > 0, name)
	}
	if got := ledger.Unlisted(nil); !reflect.DeepEqual(got, strangers) {
		t.Fatalf("unknown gates are %v, want %v", got, strangers)
	}
	var lacking NameList
	for node, under := range all {
		a, b := under["a"], under["b"]
		lacking.AddIf(a.lacksPod() && b.lacksPod(), node)
		got, known := ledger.GateStates(node)
		if want := inOrder(under); !known || !reflect.DeepEqual(got, want) {
			t.Fatalf("of node %s is told\n%+v\nwant\n%+v", node, got, want)
		}
	}
	if got := ledger.LackingPods("a", "b"); !reflect.DeepEqual(got, lacking) {
		t.Fatalf("pods of both gates are missing on %v, want %v", got, lacking)
	}
}

// What is kept of each node is small: on a large fleet there is nothing else of
// which there is so much. Bounds are in bytes for each node, under two gates.
func TestLedgerIsSmall(t *testing.T) {
	const fleet = 50_000
	names := make([]string, fleet)
	for i := range names {
		names[i] = fmt.Sprintf("node-%05d.example.com", i)
	}
	for _, test := range []struct {
		name  string
		most  uint64
		state func(i int) GateState
	}{
		{"open since various times", 130, func(int) GateState {
			return GateState{Selected: true, State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold}
		}},
		{"outside", 130, func(int) GateState { return GateState{Selected: true} }},
		{"closed, and each waits for a pod of its own", 250, func(i int) GateState {
			return GateState{
				Selected: true, State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRegression, Signal: "agent",
				Reading: gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady, Subject: fmt.Sprintf("kube-system/agent-%05d", i)},
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := liveHeap()
			ledger := NewLedger()
			for i, name := range names {
				s := test.state(i)
				s.Zone, s.Since = fmt.Sprint("zone-", i%3), time.Unix(int64(i), 0)
				one, other := s, s
				one.Gate, other.Gate = "one", "other"
				ledger.Set(name, []GateState{one, other}, 1)
			}
			ledger.Summary("one") // is not kept for each node
			each := (liveHeap() - before) / fleet
			runtime.KeepAlive(ledger)
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
