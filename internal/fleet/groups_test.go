// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/internal/gate"
)

var (
	ofThree = &gate.Together{LabelKey: "rack", AtLeast: intstr.FromInt32(3)}
	ofAll   = &gate.Together{LabelKey: "rack", SizeLabelKey: "size", AtLeast: intstr.FromString("100%")}
)

func inRack(name string) GroupKey { return GroupKey{Gate: "g", Since: 1, Name: name} }

var (
	isFit   = gate.GroupMember{Fit: true, Waits: true}
	isOpen  = gate.GroupMember{Fit: true}
	isUnfit = gate.GroupMember{}
)

func sorted(names []string) string {
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Put returns all nodes of a group when the group becomes complete or incomplete, and no
// nodes otherwise.
func TestGroupsPut(t *testing.T) {
	l := NewGroups()
	for i, step := range []struct {
		node, rack string
		member     gate.GroupMember
		want       string
	}{
		{"n1", "r1", isFit, ""},
		{"n2", "r1", isUnfit, ""},
		{"n3", "r1", isFit, ""},
		{"n3", "r1", isFit, ""}, // again
		{"n4", "r1", isFit, "n1 n2 n3 n4"},
		{"n4", "r1", isOpen, ""},
		{"n2", "r1", isFit, ""},
		{"n2", "r1", isUnfit, ""},
		{"n1", "r1", isUnfit, "n1 n2 n3 n4"},
		{"n1", "r1", isFit, "n1 n2 n3 n4"},
		{"n1", "r2", isFit, "n2 n3 n4"}, // it leaves a complete group
		{"n3", "", isFit, ""},
		{"n5", "r1", isFit, ""},
		{"n3", "r1", isFit, "n2 n3 n4 n5"},
		{"n5", "", isFit, "n2 n3 n4"},
	} {
		if got := sorted(l.Put(inRack(step.rack), ofThree, step.node, step.member)); got != step.want {
			t.Fatalf("step %d, %+v: affected nodes %q", i, step, got)
		}
	}
	if g := l.Of(inRack("r1"), "n2"); g.Fit != 2 || g.UnfitCount != 0 || g.Known {
		t.Errorf("the group of n2 is %+v", g)
	}
	if complete, incomplete := l.Count("g"); complete != 0 || incomplete != 2 {
		t.Errorf("%d complete and %d incomplete groups", complete, incomplete)
	}
}

// A size that a node declares can complete a group, and make it incomplete.
func TestGroupsSize(t *testing.T) {
	l := NewGroups()
	if got := l.Put(inRack("r1"), ofAll, "n1", isFit); got != nil {
		t.Errorf("without a size, %q is affected", got)
	}
	sized := func(n int) gate.GroupMember { return gate.GroupMember{Fit: true, Waits: true, Size: n} }
	for _, step := range []struct {
		size int
		want string
	}{{2, "n1 n2"}, {3, "n1 n2"}, {0, ""}, {1, "n1 n2"}} {
		if got := sorted(l.Put(inRack("r1"), ofAll, "n2", sized(step.size))); got != step.want {
			t.Errorf("with size %d, %q is affected, want %q", step.size, got, step.want)
		}
	}
}

// A node that joins a group is decided again if it may have been decided before others changed: one
// that waits, before the group became complete, and with closeTogether any other, before a node was
// lost.
func TestGroupsJoined(t *testing.T) {
	l, closes := NewGroups(), *ofThree
	closes.Closes = true
	for _, step := range []struct {
		gate   *gate.Together
		node   string
		member gate.GroupMember
		want   string
	}{
		{&closes, "n1", isFit, "n1"}, {&closes, "n1", isFit, ""}, {&closes, "n2", isFit, "n2"}, {ofThree, "n3", isUnfit, ""},
		{ofThree, "n4", isFit, "n1 n2 n3 n4"}, {&closes, "n5", isFit, "n5"}, {&closes, "n6", isOpen, "n6"},
		{ofThree, "n7", isFit, "n7"}, {ofThree, "n7", isFit, ""}, {ofThree, "n8", isOpen, ""}, {ofThree, "n9", isUnfit, ""},
	} {
		if got := sorted(l.Put(inRack("r1"), step.gate, step.node, step.member)); got != step.want {
			t.Errorf("%s: %q is affected, want %q", step.node, got, step.want)
		}
	}
}

// What was stored for an earlier version of the gate does not count, and what is decided
// with an earlier version is not stored.
func TestGroupsOfChangedGate(t *testing.T) {
	l := NewGroups()
	for _, n := range []string{"n1", "n2", "n3"} {
		l.Put(inRack("r1"), ofThree, n, isFit)
	}
	next := GroupKey{Gate: "g", Since: 2, Name: "r1"}
	if g := l.Of(next, "n1"); g.Fit != 0 {
		t.Errorf("before any decision with the new gate: %+v", g)
	}
	if got := l.Put(next, ofThree, "n1", isFit); got != nil {
		t.Errorf("%q is affected", got)
	}
	l.Put(inRack("r1"), ofThree, "n2", isFit)
	if g := l.Of(next, "n1"); g.Fit != 0 {
		t.Errorf("after a decision with the old gate: %+v", g)
	}
	l.Keep(func(string) *gate.Together { return nil })
	if complete, incomplete := l.Count("g"); complete+incomplete != 0 {
		t.Errorf("a gate that is not kept has %d groups", complete+incomplete)
	}
}

// Forget drops a deleted node from all of its groups.
func TestGroupsForget(t *testing.T) {
	l := NewGroups()
	other := GroupKey{Gate: "h", Since: 1, Name: "r1"}
	for _, n := range []string{"n1", "n2", "n3"} {
		l.Put(inRack("r1"), ofThree, n, isFit)
		l.Put(other, ofThree, n, isUnfit)
	}
	affected := l.Forget("n3", func(string) *gate.Together { return ofThree })
	if len(affected) != 1 || sorted(affected["g"]) != "n1 n2" {
		t.Errorf("affected: %v", affected)
	}
	if again := l.Forget("n3", func(string) *gate.Together { return ofThree }); again != nil {
		t.Errorf("again: %v", again)
	}
	if g := l.Of(other, "n1"); g.UnfitCount != 1 {
		t.Errorf("the other gate's group is %+v", g)
	}
}

// Outdated returns the nodes that wait for a group that has changed and is still
// incomplete, once.
func TestGroupsOutdated(t *testing.T) {
	l := NewGroups()
	l.Put(inRack("r1"), ofThree, "n1", isFit)
	l.Put(inRack("r1"), ofThree, "n2", isUnfit)
	l.Put(inRack("r2"), ofThree, "n9", isUnfit)
	for _, want := range []string{"n1", ""} {
		if got := sorted(l.Outdated()); got != want {
			t.Errorf("outdated: %q, want %q", got, want)
		}
	}
	l.Put(inRack("r1"), ofThree, "n3", isFit)
	if got := sorted(l.Outdated()); got != "n1 n3" {
		t.Errorf("outdated: %q", got)
	}
	l.Put(inRack("r1"), ofThree, "n2", isFit) // complete: all are affected
	if got := l.Outdated(); got != nil {
		t.Errorf("outdated: %q", got)
	}
}

// After any events, lost, doubled and in any order, the groups are those of the last state
// that was stored for each node. A group's nodes are affected exactly when it becomes
// complete or incomplete, and a node that waits when it joins a complete group. Nothing is kept
// of forgotten nodes.
func TestGroupsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, of := NewGroups(), rapid.SampledFrom([]*gate.Together{ofThree, ofAll}).Draw(t, "gate")
		type state struct {
			rack   string
			member gate.GroupMember
		}
		nodes := map[string]state{} // the oracle
		since := uint64(1)
		complete := func(rack string) bool {
			fit, size := 0, 0
			for _, s := range nodes {
				if s.rack == rack {
					if size = max(size, s.member.Size); s.member.Fit {
						fit++
					}
				}
			}
			needed := 3
			if of == ofAll {
				needed = size
			}
			return needed > 0 && fit >= needed
		}
		racks := []string{"", "r1", "r2"}
		for range 60 {
			node := fmt.Sprintf("n%d", rapid.IntRange(1, 7).Draw(t, "node"))
			before := map[string]bool{"r1": complete("r1"), "r2": complete("r2")}
			members := func(rack string) (names []string) {
				for n, s := range nodes {
					if s.rack == rack {
						names = append(names, n)
					}
				}
				return names
			}
			var affected []string
			joins := false
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				affected = l.Forget(node, func(string) *gate.Together { return of })["g"]
				delete(nodes, node)
			case 1: // the gate changes, or the controller restarts
				since++
				l.Put(GroupKey{"g", since, ""}, of, "n0", gate.GroupMember{})
				nodes, before = map[string]state{}, map[string]bool{}
			default:
				s := state{rapid.SampledFrom(racks).Draw(t, "rack"), gate.GroupMember{
					Fit: rapid.Bool().Draw(t, "fit"), Waits: rapid.Bool().Draw(t, "waits"), Size: rapid.IntRange(0, 3).Draw(t, "size"),
				}}
				for range rapid.IntRange(1, 2).Draw(t, "times") {
					affected = append(affected, l.Put(GroupKey{"g", since, s.rack}, of, node, s.member)...)
				}
				joins = nodes[node].rack != s.rack && s.member.Waits
				if nodes[node] = s; s.rack == "" {
					delete(nodes, node)
				}
			}
			var want []string
			if rack := nodes[node].rack; joins && complete(rack) && before[rack] {
				want = append(want, node)
			}
			for _, rack := range racks[1:] {
				if complete(rack) != before[rack] {
					want = append(want, members(rack)...)
				}
				for n := range nodes {
					var group gate.GroupMembers
					for other, s := range nodes {
						if s.rack == rack {
							group.Set(other, s.member)
						}
					}
					got, want := l.Of(GroupKey{"g", since, rack}, n), group.Of(n)
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("%s sees %+v in %s, want %+v", n, got, rack, want)
					}
				}
			}
			if sorted(affected) != sorted(want) {
				t.Fatalf("affected %q, want %q; nodes %v", affected, want, maps.Collect(maps.All(nodes)))
			}
		}
		for n := range nodes {
			l.Forget(n, func(string) *gate.Together { return of })
		}
		if g := l.gates["g"]; g != nil && len(g.names)+len(g.groups) > 0 {
			t.Errorf("entries of forgotten nodes remain: %+v", g)
		}
	})
}
