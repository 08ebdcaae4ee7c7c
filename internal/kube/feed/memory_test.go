// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
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

// The memory for each node and for each pod is bounded.
func TestMemory(t *testing.T) {
	const objects = 5000
	nodes := nodestore.New(nodestore.Options{})
	perNode := heapSize(func() any {
		var all []*packed.Node
		for i := range objects {
			all = append(all, nodes.Pack(kubetest.CloudNode(i)))
		}
		nodes.Sink(0).ReplaceAt(all, "1")
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

// warmUp fills a store, so that common texts are numbered, and completes its list of nodes.
func warmUp(s *nodestore.Store) {
	all := make([]*packed.Node, 100)
	for i := range 2 * len(all) {
		all[i%len(all)] = s.Pack(kubetest.CloudNode(i % len(all)))
	}
	s.Sink(s.NeededVersion()).Replace(all)
}

// BenchmarkFacts measures the cost of gathering facts for one decision, with the pods of
// a hundred queries and with those of one query.
func BenchmarkFacts(b *testing.B) {
	f := newFeed(newFakeAPI().sources(), Options{Handler: &recorder{}})
	warmUp(f.nodes)
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
	name := kubetest.CloudNode(1).Name
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

// setLive makes a feed live, as if it had read everything.
func setLive(r *running) {
	r.LiveChanged = func() {}
	r.Listing()
	r.Listed()
}
