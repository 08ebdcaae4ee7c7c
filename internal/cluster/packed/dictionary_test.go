// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

func labelled(name string, labels map[string]string) *gate.Node {
	return &gate.Node{Name: name, Labels: labels}
}

// What many have in common is numbered; what only one has is not, however often it is
// told of.
func TestWhatIsNumbered(t *testing.T) {
	p := NewPacker(NewBooks())
	for range 3 {
		for i := range 100 {
			p.Node(labelled(fmt.Sprint("node-", i), map[string]string{"pool": "gpu", "serial": fmt.Sprint("SN", i), "host": fmt.Sprint("node-", i)}), nil)
		}
	}
	got := map[entry]bool{}
	for _, e := range *p.books.current.Load().entries.Load() {
		got[e] = true
	}
	want := map[entry]bool{{"pool", "gpu"}: true, {"serial", ""}: true, {"host", ""}: true}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Error(diff)
	}
}

// A dictionary never grows beyond its size, whatever comes and goes; and one that is full
// of what is gone makes room.
func TestDictionariesAreBounded(t *testing.T) {
	const size = 50
	books := &Books{}
	books.current.Store(newDictionary(size, 1000))
	first, p := books.Dictionary(), NewPacker(books)
	for generation := range 200 {
		for i := range 2 {
			labels := map[string]string{"image": fmt.Sprint("v", generation), "kernel": fmt.Sprint("k", generation)}
			n := labelled(fmt.Sprint("node-", generation, "-", i), labels)
			if got := p.Node(n, nil).Unpack(); !cmp.Equal(n, got) {
				t.Fatalf("generation %d: %s", generation, cmp.Diff(n, got))
			}
		}
		if got := len(books.Dictionary().numbers); got > size {
			t.Fatalf("%d entries", got)
		}
	}
	if len(first.numbers) != size || books.Dictionary() != first {
		t.Fatalf("%d entries, replaced: %v; want %d that are full", len(first.numbers), books.Dictionary() != first, size)
	}
	busy := labelled("busy", map[string]string{"new": "common"})
	other := labelled("other", map[string]string{"new": "common"})
	for range 1000 {
		p.Node(busy, nil)
		p.Node(other, nil)
	}
	if now := books.Dictionary(); now == first || len(now.numbers) > 10 {
		t.Errorf("still the first dictionary: %v; %d entries", now == first, len(now.numbers))
	}
}

// Whoever packs and unpacks at the same time, while dictionaries come and go, gets
// what was packed.
func TestPackingIsSafeForManyAtOnce(t *testing.T) {
	books := &Books{}
	books.current.Store(newDictionary(20, 100))
	p := NewPacker(books)
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
					t.Errorf("%+v came back as %+v", pod, got)
				}
			}
		})
	}
	all.Wait()
}

// Two names of one hash are two pods: here all are.
func TestPodsOfOneHash(t *testing.T) {
	p := NewPacker(NewBooks())
	s := NewPodSet(p)
	pod := func(name string) Pod { return p.Pod(&gate.Pod{Name: name}) }
	s.Put("n1", pod("ns/a"))
	s.Put("n2", pod("ns/b"))
	// As if both names had the hash of c.
	s.census = map[uint32]uint32{s.hash("ns/a"): 1, s.hash("ns/b"): 1, s.hash("ns/c"): 2}
	if left, changed := s.Put("n3", pod("ns/c")); left != "" || !changed {
		t.Errorf("a third pod has left %q, changed: %v", left, changed)
	}
	if left := s.Drop("n1", "ns/b"); left != "n2" {
		t.Errorf("b was dropped from %q", left)
	}
	if left := s.Drop("n1", "ns/b"); left != "" {
		t.Errorf("b was dropped twice, from %q", left)
	}
	if len(s.On("n1")) != 1 || len(s.On("n2")) != 0 || len(s.On("n3")) != 1 {
		t.Errorf("left: %v, %v and %v", s.On("n1"), s.On("n2"), s.On("n3"))
	}
}

// Pods that were packed before a dictionary gave way to another are put beside others all
// the same.
func TestPodsOfAnOlderDictionary(t *testing.T) {
	p := NewPacker(NewBooks())
	s := NewPodSet(p)
	pod := func(name string) gate.Pod { return gate.Pod{Name: "ns/agent-" + name, Owner: "owner"} }
	for _, name := range []string{"a", "b"} { // so that what they have in common is numbered
		s.Put("n", p.Pod(new(pod(name))))
	}
	late := p.Pod(new(pod("c")))
	p.Renew()
	for _, name := range []string{"x", "y"} { // so that the same numbers mean something else
		p.Pod(&gate.Pod{Name: "other/thing-" + name, Owner: "nobody"})
	}
	s.Put("n", p.Pod(new(pod("d"))))
	s.Put("n", late)
	if left, changed := s.Put("n", late); left != "" || changed {
		t.Errorf("the same again is news: %q, %v", left, changed)
	}
	want := []gate.Pod{pod("a"), pod("b"), pod("c"), pod("d")}
	if diff := cmp.Diff(want, s.On("n")); diff != "" {
		t.Error(diff)
	}
}
