// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// heapSize returns how many bytes of the heap the result of make holds.
func heapSize(make func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// cloudNode returns a Node of the size that is typical in clouds.
func cloudNode(i int) *corev1.Node { return kubetest.CloudNode(i) }

// The memory for each node and for each pod is bounded.
func TestMemory(t *testing.T) {
	const objects = 5000
	nodes := NewNodes(IgnoreChange)
	perNode := heapSize(func() any {
		var all []*packed.Node
		for i := range objects {
			all = append(all, nodes.pack(kubetest.CloudNode(i)))
		}
		nodes.ReplaceAt(all, "1")
		return nodes
	}) / objects
	perPod := heapSize(func() any {
		s := NewPods(IgnoreNode, nodes, gate.PodQuery{})
		for i := range objects {
			s.Put(s.Convert(kubetest.CloudPod("cilium", i)))
		}
		return s
	}) / objects
	t.Logf("%.0f bytes for each node with 40 labels, %.0f for each pod", perNode, perPod)
	if perNode > 450 || perPod > 150 {
		t.Errorf("%.0f bytes for each node, and %.0f for each pod", perNode, perPod)
	}
}

// warmUp fills a store, so that common texts are numbered.
func warmUp(s *Nodes) {
	for i := range 200 {
		s.Put(s.pack(cloudNode(i % 100)))
	}
}

// BenchmarkFacts measures the cost of gathering facts for one decision, with the pods of
// a hundred queries and with those of one query.
func BenchmarkFacts(b *testing.B) {
	f := newFeed(newFakeAPI().sources(), Options{Handler: &recorder{}})
	warmUp(f.nodes)
	f.nodes.readVersion = 0
	feed := &nodeFeed{running: f.newRunning(nodesName)}
	setLive(feed.running)
	f.nodeFeed.Store(feed)
	podFeeds := make(map[gate.PodQuery]*podFeed)
	for i := range 100 {
		p := &podFeed{running: f.newRunning("pods"), pods: NewPods(func(string) {}, f.nodes, gate.PodQuery{})}
		setLive(p.running)
		podFeeds[gate.PodQuery{Namespace: "ns", Selector: fmt.Sprintf("app=%d", i)}] = p
	}
	f.podFeeds.Store(&podFeeds)
	name := cloudNode(1).Name
	one := gate.Needs{Pods: []gate.PodQuery{{Namespace: "ns", Selector: "app=7"}}}
	for what, facts := range map[string]func() (gate.Facts, bool){
		"all queries": func() (gate.Facts, bool) { return f.Facts(name) },
		"one query":   func() (gate.Facts, bool) { return f.FactsOf(name, &one) },
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

// A heartbeat does not replace the facts in memory, and allocates little.
func TestHeartbeatsAllocateLittle(t *testing.T) {
	s := NewNodes(IgnoreChange)
	warmUp(s)
	beat := cloudNode(1)
	s.Put(s.pack(beat))
	allocs := math.Inf(1) // the minimum of several runs: with -race, a sync.Pool drops some of its items
	for range 100 {
		allocs = min(allocs, testing.AllocsPerRun(1, func() { s.Put(s.pack(beat)) }))
	}
	if allocs > 12 {
		t.Errorf("%.0f allocations a heartbeat", allocs)
	}
	before := s.byName[beat.Name]
	beat.ResourceVersion = "9999999"
	s.Put(s.pack(beat))
	after := s.byName[beat.Name]
	if after == before || !packed.SameFacts(before, after) || after.ResourceVersion() != "9999999" {
		t.Error("a heartbeat was not stored, or has changed the facts")
	}
}

// setLive makes a feed live, as if it had read everything.
func setLive(r *running) {
	r.LiveChanged = func() {}
	r.Listing()
	r.Listed()
}
