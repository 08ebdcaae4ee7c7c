// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// If a re-created node was read before the watch delivers the deletion of its
// predecessor, that deletion is ignored.
func TestLateDeletionOfEarlierNode(t *testing.T) {
	s := newWatched(Options{})
	n1 := func(uid types.UID, version string) *packed.Node {
		return s.Packer.Node(&gate.Node{Name: "n1", UID: uid, ResourceVersion: version}, nil)
	}
	s.ReplaceAt([]*packed.Node{n1("a", "1")}, "1")
	s.Put(n1("b", "9"))
	s.Drop(n1("a", "5"))
	if f, known := s.Get("n1"); !known || f.Node.UID != "b" {
		t.Errorf("known: %v, %+v; want the new node", known, f.Node)
	}
	s.Drop(n1("b", "10"))
	if _, known := s.Get("n1"); known {
		t.Error("a deleted node is still known")
	}
}

// Nodes with taints come first: a new leader reconciles all nodes in this order, and only
// closed ones can wait for it.
func TestNodesWithTaintsComeFirst(t *testing.T) {
	s := newWatched(Options{})
	want := map[string]bool{}
	for i := range 100 {
		n := &gate.Node{Name: fmt.Sprint("n", i), ResourceVersion: "1"}
		if i%7 == 0 {
			n.Taints, want[n.Name] = []corev1.Taint{{Key: "closed"}}, true
		}
		s.Put(s.Packer.Node(n, nil))
	}
	names := s.Names()
	for _, name := range names[:len(want)] {
		if !want[name] {
			t.Errorf("%s comes before nodes with taints", name)
		}
	}
	if slices.Sort(names); len(names) != 100 || len(slices.Compact(names)) != 100 {
		t.Errorf("%d names: %v", len(names), names)
	}
}

// A list that is older than nodegate's own write, and arrives after its response, does
// not undo the write. Otherwise too few closed nodes would be counted.
func TestListOlderThanWrite(t *testing.T) {
	node := func(version string, taints ...string) *packed.Node {
		n := &gate.Node{Name: "n1", UID: "a", ResourceVersion: version, BootID: "a"}
		for _, key := range taints {
			n.Taints = append(n.Taints, corev1.Taint{Key: key})
		}
		return packed.NewPacker(packed.NewDictionaries()).Node(n, nil)
	}
	written := kubetest.Node("n1", "", func(n *corev1.Node) {
		n.ResourceVersion, n.UID, n.Spec.Taints = "9", "a", []corev1.Taint{{Key: "closed"}}
	})
	for name, c := range map[string]struct {
		then func(s watched)
		want string
	}{
		"a list older than the write": {func(s watched) { s.ReplaceAt([]*packed.Node{node("5")}, "7") }, "9"},
		"two older lists": {func(s watched) {
			s.ReplaceAt([]*packed.Node{node("5")}, "7")
			s.ReplaceAt([]*packed.Node{node("5")}, "8")
		}, "9"},
		"a list that contains the write":        {func(s watched) { s.ReplaceAt([]*packed.Node{node("9", "closed")}, "9") }, "9"},
		"a later list":                          {func(s watched) { s.ReplaceAt([]*packed.Node{node("11")}, "12") }, "11"},
		"a list of restored data":               {func(s watched) { s.ReplaceAt([]*packed.Node{node("3")}, "4") }, "3"},
		"restored after the watch delivered it": {func(s watched) { s.Put(node("9", "closed")); s.ReplaceAt([]*packed.Node{node("5")}, "8") }, "5"},
		"restored, and delivered before observed": {func(s watched) {
			s.Put(node("9", "closed"))
			s.Observe(written)
			s.ReplaceAt([]*packed.Node{node("5")}, "8")
		}, "5"},
		"the watch is behind the write":           {func(s watched) { s.Put(node("6")); s.ReplaceAt([]*packed.Node{node("6")}, "7") }, "9"},
		"the node is missing from the older list": {func(s watched) { s.ReplaceAt(nil, "7") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWatched(Options{})
			s.ReplaceAt([]*packed.Node{node("5")}, "5")
			s.Observe(written)
			c.then(s)
			if f, _ := s.Get("n1"); f.Node.ResourceVersion != c.want {
				t.Errorf("stored version %q, want %q", f.Node.ResourceVersion, c.want)
			}
		})
	}
}

// A list of an earlier state is counted before that state can be read.
func TestRewindsAreCounted(t *testing.T) {
	listed := []string{"5", "7", "6", "6", "9"}
	want := []int64{0, 0, 1, 1, 1}
	s := newWatched(Options{})
	for i, version := range listed {
		s.ReplaceAt(nil, version)
		if got := s.Rewinds(); got != want[i] {
			t.Errorf("after lists at versions %v: %d rewinds, want %d", listed[:i+1], got, want[i])
		}
	}
}

// Creating, changing or removing an override is announced.
func TestOverrideChangesAreAnnounced(t *testing.T) {
	var changes int
	s := newWatched(Options{Changed: func(string, gate.Change) { changes++ }})
	put := func(version string, annotations map[string]string) map[string]string {
		n := kubetest.Node("a", "1", func(n *corev1.Node) { n.Annotations, n.ResourceVersion = annotations, version })
		s.Put(s.Pack(n))
		known, _ := s.Get("a")
		return known.Node.Overrides
	}
	for i, test := range []struct{ annotations, want map[string]string }{
		{nil, nil},
		{map[string]string{"override.nodegate.dev/g": "x"}, map[string]string{"g": "x"}},
		{map[string]string{"override.nodegate.dev/g": "y"}, map[string]string{"g": "y"}},
		{map[string]string{"gate.nodegate.dev/g": "y"}, nil},
	} {
		if got := put(fmt.Sprint(i+1), test.annotations); !maps.Equal(got, test.want) || changes != i+1 {
			t.Errorf("%v: overrides %v, announced %d times, want %d", test.annotations, got, changes, i+1)
		}
	}
	if put("9", map[string]string{"gate.nodegate.dev/g": "y", "other": "x"}); changes != 4 {
		t.Error("a change of another annotation was announced")
	}
}
