// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

func labelled(name string, labels map[string]string) *gate.Node {
	return &gate.Node{Name: name, Labels: labels}
}

// Texts that objects share are numbered. Texts of a single object are not, no matter how
// often it is packed.
func TestSharedTextsAreNumbered(t *testing.T) {
	p := NewPacker(NewDictionaries())
	for range 3 {
		for i := range 100 {
			p.Node(labelled(fmt.Sprint("node-", i), map[string]string{"pool": "gpu", "serial": fmt.Sprint("SN", i), "host": fmt.Sprint("node-", i)}), nil)
		}
	}
	got := map[entry]bool{}
	for _, e := range *p.dictionaries.current.Load().entries.Load() {
		got[e] = true
	}
	want := map[entry]bool{{"pool", "gpu"}: true, {"serial", ""}: true, {"host", ""}: true}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Error(diff)
	}
}

// A dictionary never exceeds its maximum size. One that is full of outdated entries is
// replaced.
func TestDictionariesAreBounded(t *testing.T) {
	const size = 50
	dictionaries := &Dictionaries{}
	dictionaries.current.Store(newDictionary(size, 1000))
	first, p := dictionaries.Current(), NewPacker(dictionaries)
	for generation := range 200 {
		for i := range 2 {
			labels := map[string]string{"image": fmt.Sprint("v", generation), "kernel": fmt.Sprint("k", generation)}
			n := labelled(fmt.Sprint("node-", generation, "-", i), labels)
			if got := p.Node(n, nil).Unpack(); !cmp.Equal(n, got) {
				t.Fatalf("generation %d: %s", generation, cmp.Diff(n, got))
			}
		}
		if got := len(dictionaries.Current().numbers); got > size {
			t.Fatalf("%d entries, want at most %d", got, size)
		}
	}
	if len(first.numbers) != size || dictionaries.Current() != first {
		t.Fatalf("%d entries, replaced: %v; want %d entries, not replaced", len(first.numbers), dictionaries.Current() != first, size)
	}
	busy := labelled("busy", map[string]string{"new": "common"})
	other := labelled("other", map[string]string{"new": "common"})
	for range 1000 {
		p.Node(busy, nil)
		p.Node(other, nil)
	}
	if now := dictionaries.Current(); now == first || len(now.numbers) > 10 {
		t.Errorf("still the first dictionary: %v; %d entries", now == first, len(now.numbers))
	}
}

// A dictionary has no long entries, however many nodes report them. The facts are the same
// after unpacking.
func TestLongTextsAreNotNumbered(t *testing.T) {
	p := NewPacker(NewDictionaries())
	text := func(length int) string { return strings.Repeat("x", length) }
	for i := range 3 {
		n := labelled(fmt.Sprint("node-", i), map[string]string{"k" + text(255): text(256), "l" + text(255): text(257)})
		n.Annotations = map[string]string{"a": text(1 << 18)}
		n.Taints = []corev1.Taint{{Key: text(513), Value: "v", Effect: "NoSchedule"}}
		n.Allocatable = map[string]resource.Quantity{text(514): resource.MustParse("1")}
		for _, length := range []int{507, 508, 509, 512, 513, 1 << 18} {
			n.Conditions = append(n.Conditions, gate.Condition{Type: text(length), Status: "True"})
		}
		if diff := cmp.Diff(n, p.Node(n, nil).Unpack()); diff != "" {
			t.Error(diff)
		}
	}
	lengths := map[int]bool{}
	for _, e := range *p.dictionaries.current.Load().entries.Load() {
		if length := len(e.key) + len(e.value); length > 400 {
			lengths[length] = true
		}
	}
	// The conditions of 507 and 508 bytes with their status, the types of 509 and 512 bytes
	// without theirs, and the first label.
	if want := map[int]bool{511: true, 512: true, 509: true}; !maps.Equal(lengths, want) {
		t.Errorf("the long entries have %v bytes, want %v", lengths, want)
	}
}

// Goroutines that pack and unpack concurrently, while dictionaries are replaced, get the
// same facts back.
func TestConcurrentPacking(t *testing.T) {
	dictionaries := &Dictionaries{}
	dictionaries.current.Store(newDictionary(20, 100))
	p := NewPacker(dictionaries)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 500 {
				n := labelled(fmt.Sprint("n", worker), map[string]string{"a": fmt.Sprint(i % 30), "b": fmt.Sprint(worker)})
				if got := p.Node(n, nil).Unpack(); !cmp.Equal(n, got) {
					t.Error(cmp.Diff(n, got))
				}
				pod := gate.Pod{Name: fmt.Sprintf("ns/agent-%d", i%7), UID: types.UID(fmt.Sprint(i)), Owner: types.UID(fmt.Sprint(i % 3))}
				if got := p.Pod(&pod).Unpack(); got != pod {
					t.Errorf("%+v was unpacked as %+v", pod, got)
				}
			}
		})
	}
	all.Wait()
}

// Two names with the same hash are two pods. Here all names have the same hash.
func TestHashCollision(t *testing.T) {
	p := NewPacker(NewDictionaries())
	s := NewPodSet(p)
	pod := func(name string) Pod { return p.Pod(&gate.Pod{Name: name}) }
	s.Put("n1", pod("ns/a"))
	s.Put("n2", pod("ns/b"))
	// As if both names had the hash of ns/c.
	s.hashCounts = map[uint32]uint32{s.hash("ns/a"): 1, s.hash("ns/b"): 1, s.hash("ns/c"): 2}
	if movedFrom, changed := s.Put("n3", pod("ns/c")); movedFrom != "" || !changed {
		t.Errorf("a third pod was moved from %q, changed: %v", movedFrom, changed)
	}
	if movedFrom := s.Drop("n1", "ns/b"); movedFrom != "n2" {
		t.Errorf("b was dropped from %q", movedFrom)
	}
	if movedFrom := s.Drop("n1", "ns/b"); movedFrom != "" {
		t.Errorf("b was dropped twice, from %q", movedFrom)
	}
	if len(s.On("n1")) != 1 || len(s.On("n2")) != 0 || len(s.On("n3")) != 1 {
		t.Errorf("remaining: %v, %v and %v", s.On("n1"), s.On("n2"), s.On("n3"))
	}
}

// Pods that were packed with a dictionary that has been replaced can be added to a set
// with newer ones.
func TestPodsOfAnOlderDictionary(t *testing.T) {
	p := NewPacker(NewDictionaries())
	s := NewPodSet(p)
	pod := func(name string) gate.Pod { return gate.Pod{Name: "ns/agent-" + name, Owner: "owner"} }
	for _, name := range []string{"a", "b"} { // so that their common texts are numbered
		s.Put("n", p.Pod(new(pod(name))))
	}
	late := p.Pod(new(pod("c")))
	p.Renew()
	for _, name := range []string{"x", "y"} { // so that the same numbers have another meaning
		p.Pod(&gate.Pod{Name: "other/thing-" + name, Owner: "nobody"})
	}
	s.Put("n", p.Pod(new(pod("d"))))
	s.Put("n", late)
	if movedFrom, changed := s.Put("n", late); movedFrom != "" || changed {
		t.Errorf("the same pod counts as changed: %q, %v", movedFrom, changed)
	}
	want := []gate.Pod{pod("a"), pod("b"), pod("c"), pod("d")}
	if diff := cmp.Diff(want, s.On("n")); diff != "" {
		t.Error(diff)
	}
}
