// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Of leaves out the node itself, and names the first others that are not fit.
func TestGroupOf(t *testing.T) {
	var members GroupMembers
	for name, m := range map[string]GroupMember{"n1": {Size: 9, Fit: true}, "n2": {Fit: true, Size: 5}, "n3": {}, "n7": {}, "n5": {Size: 6}, "n4": {}, "n6": {}} {
		members.Set(name, m)
	}
	g := members.Of("n1")
	if g.Fit != 1 || g.Size != 6 || g.UnfitCount != 5 || !slices.Equal(g.Unfit, []string{"n3", "n4", "n5"}) || g.Known {
		t.Errorf("%+v", g)
	}
	if g := members.Of("n3"); g.Fit != 2 || g.UnfitCount != 4 || !slices.Equal(g.Unfit, []string{"n4", "n5", "n6"}) {
		t.Errorf("for n3: %+v", g)
	}
	if g := members.Of("another"); g.Fit != 2 || g.UnfitCount != 5 || g.Size != 9 {
		t.Errorf("for another node: %+v", g)
	}
	if g := new(GroupMembers).Of("n1"); g.Fit+g.UnfitCount+len(g.Unfit) != 0 {
		t.Errorf("of no nodes: %+v", g)
	}
}

// groupOf returns what is known about the other nodes of a node's group, by reading all of them.
func groupOf(members map[string]GroupMember, node string) (g Group) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		m := members[name]
		if name == node {
			continue
		}
		g.Size = max(g.Size, m.Size)
		if m.Fit {
			g.Fit++
			continue
		}
		if g.UnfitCount++; g.UnfitCount <= groupNames {
			g.Unfit = append(g.Unfit, name)
		}
	}
	return g
}

// After any changes, what is counted is what reading all nodes would find.
func TestGroupMembersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g GroupMembers
		all := map[string]GroupMember{}
		for range 40 {
			name := fmt.Sprintf("n%d", rapid.IntRange(1, 8).Draw(t, "node"))
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				g.Delete(name)
				delete(all, name)
			} else {
				all[name] = GroupMember{Fit: rapid.Bool().Draw(t, "fit"), Waits: rapid.Bool().Draw(t, "waits"), Size: rapid.IntRange(0, 3).Draw(t, "size")}
				g.Set(name, all[name])
			}
			if got := maps.Collect(g.All()); !maps.Equal(got, all) || g.Len() != len(all) {
				t.Fatalf("the nodes are %+v, want %+v", got, all)
			}
			for i := range 10 {
				node := fmt.Sprintf("n%d", i)
				if got, want := g.Of(node), groupOf(all, node); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("%s sees %+v, want %+v; nodes %+v", node, got, want, all)
				}
			}
		}
	})
}

// BenchmarkGroup measures what a decision about a node of a large group costs: reading the group,
// and storing the node's fitness in it.
func BenchmarkGroup(b *testing.B) {
	for _, size := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var g GroupMembers
			names := make([]string, size)
			for i := range names {
				names[i] = fmt.Sprintf("node-%04d", i)
				g.Set(names[i], GroupMember{Size: size, Fit: i%2 == 0})
			}
			for i := 0; b.Loop(); i++ {
				name := names[i%size]
				_ = g.Of(name)
				g.Set(name, GroupMember{Size: size, Fit: i%3 == 0})
			}
		})
	}
}
