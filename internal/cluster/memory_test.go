// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// held is how much of the heap something holds.
func held(make func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// cloudNode is a Node as clouds make them.
func cloudNode(i int) *corev1.Node { return fleetNode(i) }

// What is kept is bounded: so many bytes of the heap for each node, and for each pod.
func TestMemory(t *testing.T) {
	const objects = 5000
	nodes := newNodeStore(unheard)
	perNode := held(func() any {
		var all []*packed.Node
		for i := range objects {
			all = append(all, nodes.pack(fleetNode(i)))
		}
		nodes.replace(all)
		return nodes
	}) / objects
	perPod := held(func() any {
		s := newPodSet(nobody, nodes, "")
		for i := range objects {
			s.put(s.convert(fleetPod("cilium", i)))
		}
		return s
	}) / objects
	t.Logf("%.0f bytes for a node of 40 labels, %.0f for a pod", perNode, perPod)
	if perNode > 450 || perPod > 150 {
		t.Errorf("%.0f bytes for a node, and %.0f for a pod", perNode, perPod)
	}
}

// settle has a store know a fleet of which it has heard for a while.
func settle(s *nodeStore) {
	for i := range 200 {
		s.put(s.pack(cloudNode(i % 100)))
	}
}

// BenchmarkFacts is what gathering facts for one decision costs, with the pods of a
// hundred queries, and for one that looks at those of one query.
func BenchmarkFacts(b *testing.B) {
	f := newFeed(newFakeAPI().sources(), Options{Handler: &recorder{}})
	settle(f.nodes)
	f.nodes.read = 0
	feed := &nodeFeed{running: f.newRunning(nodesName)}
	feed.live = true
	f.nodeFeed.Store(feed)
	podFeeds := make(map[gate.PodQuery]*podFeed)
	for i := range 100 {
		p := &podFeed{running: f.newRunning("pods"), pods: newPodSet(func(string) {}, f.nodes, "")}
		p.live = true
		podFeeds[gate.PodQuery{Namespace: "ns", Selector: fmt.Sprintf("app=%d", i)}] = p
	}
	f.podFeeds.Store(&podFeeds)
	name := cloudNode(1).Name
	one := gate.Needs{Pods: []gate.PodQuery{{Namespace: "ns", Selector: "app=7"}}}
	for what, facts := range map[string]func() (gate.Facts, bool){
		"of all": func() (gate.Facts, bool) { return f.Facts(name) },
		"of one": func() (gate.Facts, bool) { return f.FactsOf(name, &one) },
	} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := facts(); !ok {
					b.Fatal("no facts")
				}
			}
		})
	}
}

// A heartbeat leaves the facts where they are in memory, and little behind.
func TestHeartbeatsLeaveLittleBehind(t *testing.T) {
	s := newNodeStore(unheard)
	settle(s)
	beat := cloudNode(1)
	s.put(s.pack(beat))
	least := math.Inf(1) // of several: with -race, a sync.Pool loses some of what it is given
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, func() { s.put(s.pack(beat)) }))
	}
	if least > 12 {
		t.Errorf("%.0f allocations a heartbeat", least)
	}
	before := s.byName[beat.Name]
	beat.ResourceVersion = "9999999"
	s.put(s.pack(beat))
	after := s.byName[beat.Name]
	if after == before || !packed.SameFacts(before, after) || after.ResourceVersion() != "9999999" {
		t.Error("a heartbeat was not taken in, or has changed the facts")
	}
}
