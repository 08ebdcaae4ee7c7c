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

// stateModel is the simplest model of a Ledger: it has all states uncompressed, by node and
// gate.
type stateModel map[string]map[string]GateState

// named returns the nodes whose state of the gate meets the condition.
func (r stateModel) named(gateName string, met func(*GateState) bool) (names NameList) {
	for node, all := range r {
		s, ok := all[gateName]
		names.AddIf(ok && met(&s), node)
	}
	return names
}

// on returns the state of a gate on the first of these nodes, if there is one.
func (r stateModel) on(gateName string, names NameList) (s GateState) {
	if names.Count > 0 {
		s = r[names.First[0]][gateName]
	}
	return s
}

func (r stateModel) summary(gateName string) *Summary {
	named := func(met func(*GateState) bool) NameList { return r.named(gateName, met) }
	count := func(met func(*GateState) bool) int32 { return int32(named(met).Count) }
	isClosed := func(s *GateState) bool { return s.State == v1alpha1.StateClosed }
	out := &Summary{
		WaitsFor:      map[string]int{},
		Throttled:     named(func(s *GateState) bool { return s.Throttled }),
		Contended:     named(func(s *GateState) bool { return s.Contended }),
		Denied:        named(func(s *GateState) bool { return s.Denied != "" }),
		Failing:       named(func(s *GateState) bool { return s.Failed != "" }),
		FailingLong:   named(func(s *GateState) bool { return s.FailedLong }),
		Published:     named(func(s *GateState) bool { return s.Published }),
		Unpublished:   named(func(s *GateState) bool { return s.ConditionQueued }),
		nonMembers:    map[v1alpha1.NonMemberReason]*NameList{},
		Contradicting: named(func(s *GateState) bool { return s.Ring != "" }),
		Undecided:     named(func(s *GateState) bool { return s.undecided != "" }),
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
	out.Denial, out.IgnoredWhy, out.UndecidedWhy = r.on(gateName, out.Denied).Denied, r.on(gateName, out.Ignored).Ignored, r.on(gateName, out.Undecided).undecided
	if out.Failure = r.on(gateName, out.FailingLong).Failed; out.FailingLong.Count == 0 {
		out.Failure = r.on(gateName, out.Failing).Failed
	}
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

// drawState draws the state of a gate on a node. Each field has few values, so that some
// nodes have equal states.
func drawState(t *rapid.T, gateName string) GateState {
	flag := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	// Mostly empty, so that some states have only one reason to be named.
	text := func(name string, of ...string) string {
		return rapid.SampledFrom(append(of, make([]string, 6)...)).Draw(t, name)
	}
	s := GateState{
		Gate: gateName, Selected: !flag("deselected"), Zone: text("zone", "a", "b"), Signal: text("signal", "agent", "network"),
		State:     rapid.SampledFrom([]string{"", v1alpha1.StateOpen, v1alpha1.StateClosed, v1alpha1.StateClosed}).Draw(t, "state"),
		Reason:    v1alpha1.Reason(text("reason", string(v1alpha1.ReasonDeadlinePassed), string(v1alpha1.ReasonRegression))),
		Since:     time.Unix(rapid.Int64Range(0, 20).Draw(t, "since"), 0).UTC(),
		Throttled: flag("throttled"), Contended: flag("contended"), Overdue: flag("overdue"), Unlisted: flag("unlisted"),
		undecided: text("undecided", "signal 1", "signal 2"), Ignored: text("ignored", "cause 1", "cause 2"), Denied: text("denied", "error 1", "error 2"),
		NonMember: v1alpha1.NonMemberReason(text("not a member", string(v1alpha1.NonMemberPaused), string(v1alpha1.NonMemberNotIdle))), Ring: text("ring", "a, b", "b, c"),
		Override: text("override", v1alpha1.StateOpen), Reading: gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady, Subject: text("subject", "pod-1", "pod-2")},
	}
	if s.Failed = text("failed", "failure 1", "failure 2"); s.Failed != "" {
		s.FailedLong = flag("failed for long")
	}
	s.Published = flag("published")
	s.ConditionQueued = s.State == v1alpha1.StateClosed && flag("condition queued") // only closed gates publish conditions
	if flag("no pod") {
		s.Reading.Reason = v1alpha1.ReadingPodMissing
	}
	if flag("blocked") {
		s.Blocked = gate.Reading{Reason: v1alpha1.ReadingMinClosed, Subject: text("until", "tomorrow", "the day after")}
	}
	return s
}

// The ledger returns the same states and summaries as the model after any sequence of
// operations, and keeps nothing of forgotten nodes.
func TestLedgerAgainstModel(t *testing.T) {
	names := []string{"a", "b", "c"} // of gates
	rapid.Check(t, func(t *rapid.T) {
		ledger, all := NewLedger(), stateModel{}
		node := func() string { return fmt.Sprint("n", rapid.IntRange(1, 14).Draw(t, "node")) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { compare(t, ledger, all, names) },
			"set": func(t *rapid.T) {
				name, states := node(), map[string]GateState{}
				for _, gateName := range names {
					if rapid.Bool().Draw(t, "has "+gateName) {
						states[gateName] = drawState(t, gateName)
					}
				}
				all[name] = states
				ledger.Set(name, inOrder(states), 1)
			},
			"note the same": func(*rapid.T) {
				name := node()
				if states, known := all[name]; known {
					ledger.Note(name, inOrder(states), 2)
				}
			},
			"forget": func(*rapid.T) {
				name := node()
				delete(all, name)
				ledger.Forget(name)
			},
		})
		for name := range all {
			ledger.Forget(name)
		}
		if len(ledger.gates)+len(ledger.nodes) > 0 {
			t.Errorf("entries of forgotten nodes remain: %+v", ledger)
		}
	})
}

func inOrder(states map[string]GateState) (all []GateState) {
	for _, name := range slices.Sorted(maps.Keys(states)) {
		all = append(all, states[name])
	}
	return all
}

// compare compares everything that the ledger returns with the model.
func compare(t *rapid.T, ledger *Ledger, all stateModel, names []string) {
	var unlisted NameList
	for _, name := range names {
		everything := gocmp.Exporter(func(reflect.Type) bool { return true })
		if diff := gocmp.Diff(all.summary(name), ledger.Summary(name), everything, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("summary of gate %s (-want +got):\n%s", name, diff)
		}
		unlisted.AddIf(all.named(name, func(s *GateState) bool { return s.Unlisted }).Count > 0, name)
	}
	if got := ledger.Unlisted(nil); !reflect.DeepEqual(got, unlisted) {
		t.Fatalf("unlisted gates are %v, want %v", got, unlisted)
	}
	var lacking NameList
	for node, states := range all {
		a, b := states["a"], states["b"]
		lacking.AddIf(a.lacksPod() && b.lacksPod(), node)
		got, known := ledger.GateStates(node)
		if want := inOrder(states); !known || !reflect.DeepEqual(got, want) {
			t.Fatalf("states of node %s:\n%+v\nwant\n%+v", node, got, want)
		}
	}
	if got := ledger.LackingPods("a", "b"); !reflect.DeepEqual(got, lacking) {
		t.Fatalf("nodes that lack pods of both gates: %v, want %v", got, lacking)
	}
}

// The ledger needs little memory per node, because its size dominates in large fleets. The
// limits are in bytes per node with two gates.
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
		{"open, different times", 130, func(int) GateState {
			return GateState{Selected: true, State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold}
		}},
		{"not a member", 130, func(int) GateState { return GateState{Selected: true} }},
		{"closed, waiting for different pods", 250, func(i int) GateState {
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
			ledger.Summary("one") // its size must not depend on the number of nodes
			each := (liveHeap() - before) / fleet
			runtime.KeepAlive(ledger)
			t.Logf("%d bytes per node", each)
			if each > test.most {
				t.Errorf("%d bytes per node, want at most %d", each, test.most)
			}
		})
	}
	runtime.KeepAlive(names)
}

// liveHeap returns the number of reachable bytes.
func liveHeap() uint64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
