// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
)

// These benchmarks use only the exported API of this package. 'make bench-compare'
// compares their allocations.

// nodeCounter is a Handler that counts notifications about nodes.
type nodeCounter struct{ nodes atomic.Int64 }

func (c *nodeCounter) NodeChanged(string, gate.Change) { c.nodes.Add(1) }
func (c *nodeCounter) GatesChanged()                   {}

// manualWatch lists the objects of a kind, and watches events that the benchmark sends.
// Sending returns when the event is received, which is after the previous one has been
// processed.
func manualWatch(k *fakeKind) (*cache.ListWatch, *watch.FakeWatcher) {
	k.streamErr = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
	events := watch.NewFake()
	lw := k.listWatch()
	inner := lw.WatchFuncWithContext
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if o.SendInitialEvents != nil && *o.SendInitialEvents {
			return inner(ctx, o)
		}
		return events, nil
	}
	return lw, events
}

// benchFleet is the number of other nodes, which have been known for a while.
const benchFleet = 50

// benchNamed is the node that changes. It is read last.
const benchNamed = "node"

// benchFeed is a running Feed of a fleet in which one node and its agent's pod change.
type benchFeed struct {
	*Feed
	handler     nodeCounter
	nodes, pods *watch.FakeWatcher
}

func startBenchFeed(b *testing.B, needed gate.Needs, node *corev1.Node, pod *corev1.Pod) *benchFeed {
	b.Helper()
	api, f := newFakeAPI(), &benchFeed{}
	for i := range benchFleet {
		api.nodes().Put(kubetest.CloudNode(i))
	}
	api.nodes().Put(node)
	api.pods(query).Put(pod)
	from := api.sources()
	from.nodes, f.nodes = manualWatch(api.nodes())
	pods, events := manualWatch(api.pods(query))
	others := from.pods
	from.pods = func(q gate.PodQuery) *cache.ListWatch {
		if q == query {
			return pods
		}
		return others(q)
	}
	f.pods = events
	f.Feed = newFeed(from, Options{Handler: &f.handler, Log: logr.Discard()})
	f.SetNeeds(needed)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { cancel(); running.Wait() })
	f.awaitSynced(b)
	return f
}

func (f *benchFeed) awaitSynced(b *testing.B) {
	b.Helper()
	awaittest.Until(b, "the feed to read everything", func(context.Context) error {
		if unsynced := f.Unsynced(); len(unsynced) > 0 {
			return fmt.Errorf("not read: %v", unsynced)
		}
		return nil
	})
}

// BenchmarkObserve measures the cost of an event from the watch to the facts. An event
// that changes no fact is not announced.
func BenchmarkObserve(b *testing.B) {
	start := time.Unix(1700000000, 0)
	node := func(beat time.Duration, change ...func(*corev1.Node)) *corev1.Node {
		n := busyNode(benchNamed, start.Add(beat))
		for _, c := range change {
			c(n)
		}
		return n
	}
	pod := func(ready bool) *corev1.Pod { return kubetest.Pod("agent-x", "pod", benchNamed, ready) }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{kubetest.Taint("k", "v", corev1.TaintEffectNoSchedule)}
	}
	rewritten := pod(true)
	rewritten.Status.ObservedGeneration = 2
	for name, c := range map[string]struct {
		states  [2]metav1.Object // alternating
		changes int              // announced for two events
	}{
		"heartbeat":     {[2]metav1.Object{node(0), node(10 * time.Second)}, 0},
		"node changed":  {[2]metav1.Object{node(0, tainted), node(0)}, 2},
		"pod changed":   {[2]metav1.Object{pod(false), pod(true)}, 2},
		"pod unchanged": {[2]metav1.Object{pod(true), rewritten}, 0},
	} {
		b.Run(name, func(b *testing.B) { observe(b, c.states, c.changes) })
	}
}

// observe sends two states of a node or of its pod alternately.
func observe(b *testing.B, states [2]metav1.Object, wantChanges int) {
	f := startBenchFeed(b, everything(), busyNode(benchNamed, time.Unix(1700000000, 0)), kubetest.Pod("agent-x", "pod", benchNamed, true))
	send := func(i int) {
		o := states[i%2]
		o.SetResourceVersion(strconv.Itoa(1000 + i))
		switch o := o.(type) {
		case *corev1.Node:
			f.nodes.Modify(o)
		case *corev1.Pod:
			f.pods.Modify(o)
		}
	}
	sent := 0
	for ; sent < 10; sent++ { // until the texts are in the dictionary
		send(sent)
	}
	b.ReportAllocs()
	for b.Loop() {
		send(sent)
		sent++
	}
	b.StopTimer()
	for range 2 - sent%2 { // receiving the last event implies that the previous ones have been processed
		send(sent)
		sent++
	}
	changes := f.handler.nodes.Load()
	if least, most := int64((sent-1)*wantChanges/2), int64(sent*wantChanges/2); changes < least || changes > most {
		b.Errorf("after %d events the node was announced %d times, want %d to %d", sent, changes, least, most)
	}
}

// BenchmarkGather measures the cost of gathering all facts about a node for one decision.
func BenchmarkGather(b *testing.B) {
	for _, queries := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("queries=%d", queries), func(b *testing.B) {
			needed := everything()
			for i := 1; i < queries; i++ {
				needed.Pods = append(needed.Pods, gate.PodQuery{Namespace: "ns", Selector: fmt.Sprintf("app=%d", i)})
			}
			f := startBenchFeed(b, needed, busyNode(benchNamed, time.Unix(1700000000, 0)), kubetest.Pod("agent-x", "pod", benchNamed, true))
			b.ReportAllocs()
			for b.Loop() {
				if facts, ok := f.Facts(benchNamed); !ok || len(facts.Pods) != queries {
					b.Fatalf("facts of %d queries, %v", len(facts.Pods), ok)
				}
			}
		})
	}
}
