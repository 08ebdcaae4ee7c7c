// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
func cloudNode(i int) *corev1.Node {
	name := fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255)
	n := testNode(name, types.UID(uuid.NewString()))
	for l := range 16 {
		n.Labels[fmt.Sprintf("topology.example.com/label-%d", l)] = fmt.Sprintf("value-%d", (i+l)%7)
	}
	n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("eu-west-1%c", 'a'+i%3)
	n.Annotations = map[string]string{
		"gate.nodegate.dev/cilium": `{"state":"Open","since":"2026-01-02T03:04:05.678Z","reason":"SignalsHold","boot":"` + uuid.NewString() + `"}`,
		"csi.example.com/nodeid":   name,
	}
	n.Status.NodeInfo.BootID = uuid.NewString()
	for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionFalse})
	}
	return n
}

// BenchmarkNodeMemory reports what a node costs. Its labels, of which there
// are 18, are most of it.
func BenchmarkNodeMemory(b *testing.B) {
	const nodes = 10_000
	var bytes float64
	for b.Loop() {
		bytes = held(func() any {
			s := newNodeStore(func(string) {})
			for i := range nodes {
				s.put(s.convert(cloudNode(i)))
			}
			return s
		})
	}
	b.ReportMetric(bytes/nodes, "heapB/node")
}

// BenchmarkPodMemory reports what a daemon's pod costs.
func BenchmarkPodMemory(b *testing.B) {
	const pods = 10_000
	var bytes float64
	for b.Loop() {
		bytes = held(func() any {
			s := newPodSet(func(string) {}, newInterner(), "")
			for i := range pods {
				p := testPod(fmt.Sprintf("cilium-%05d", i), types.UID(uuid.NewString()), cloudNode(i).Name, true)
				p.OwnerReferences = []metav1.OwnerReference{{UID: "0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11", Controller: new(true)}}
				s.put(s.convert(p))
			}
			return s
		})
	}
	b.ReportMetric(bytes/pods, "heapB/pod")
}

// BenchmarkFacts is what gathering facts for one decision costs.
func BenchmarkFacts(b *testing.B) {
	f := newFeed(newFakeAPI().sources(), Options{Handler: &recorder{}})
	f.nodes.put(f.nodes.convert(cloudNode(1)))
	f.nodes.read = 0
	feed := &nodeFeed{running: f.newRunning(nodesName)}
	feed.live = true
	f.nodeFeed.Store(feed)
	podFeeds := make(map[gate.PodQuery]*podFeed)
	for i := range 10 {
		p := &podFeed{running: f.newRunning("pods"), pods: newPodSet(func(string) {}, f.nodes.intern, "")}
		p.live = true
		podFeeds[gate.PodQuery{Namespace: "ns", Selector: fmt.Sprintf("app=%d", i)}] = p
	}
	f.podFeeds.Store(&podFeeds)
	name := cloudNode(1).Name
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := f.Facts(name); !ok {
			b.Fatal("no facts")
		}
	}
}
