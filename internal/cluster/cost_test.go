// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/cluster/await/awaittest"
	"github.com/nodegate/nodegate/internal/gate"
)

// The benchmarks here go from end to end through what this package offers, and
// not by what it is made of: 'make bench-compare' watches what they allocate.

// newsCounter is a Handler that counts how often it is told of a node.
type newsCounter struct{ nodes atomic.Int64 }

func (c *newsCounter) NodeChanged(string, gate.Change) { c.nodes.Add(1) }
func (c *newsCounter) GatesChanged()                   {}

// byHand lists what a kind has, and watches what the benchmark sends. A send
// returns when the event is taken, hence after the one before has been worked off.
func byHand(k *fakeKind) (*cache.ListWatch, *watch.FakeWatcher) {
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

// benchFleet is how many other nodes there are, as in a fleet that has been known
// for a while.
const benchFleet = 50

// benchNamed is the node that changes: the last that is read.
const benchNamed = "node"

// benchFeed is a running Feed of a fleet, of which one node and its agent change.
type benchFeed struct {
	*Feed
	told        newsCounter
	nodes, pods *watch.FakeWatcher
}

func startBenchFeed(b *testing.B, needed gate.Needs, node *corev1.Node, pod *corev1.Pod) *benchFeed {
	b.Helper()
	api, f := newFakeAPI(), &benchFeed{}
	for i := range benchFleet {
		api.nodes().put(fleetNode(i))
	}
	api.nodes().put(node)
	api.pods(query).put(pod)
	from := api.sources()
	from.nodes, f.nodes = byHand(api.nodes())
	pods, events := byHand(api.pods(query))
	others := from.pods
	from.pods = func(q gate.PodQuery) *cache.ListWatch {
		if q == query {
			return pods
		}
		return others(q)
	}
	f.pods = events
	f.Feed = newFeed(from, Options{Handler: &f.told, Log: logr.Discard()})
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

// BenchmarkObserve is what an event costs from the watch to the facts. What
// changes nothing has nobody look at the node.
func BenchmarkObserve(b *testing.B) {
	start := time.Unix(1700000000, 0)
	node := func(beat time.Duration, change ...func(*corev1.Node)) *corev1.Node {
		n := busyNode(benchNamed, start.Add(beat))
		for _, c := range change {
			c(n)
		}
		return n
	}
	pod := func(ready bool) *corev1.Pod { return testPod("agent-x", "pod", benchNamed, ready) }
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("k", "v", corev1.TaintEffectNoSchedule)} }
	rewritten := pod(true)
	rewritten.Status.ObservedGeneration = 2
	for name, c := range map[string]struct {
		states [2]metav1.Object // in turns
		news   int              // for each two events
	}{
		"heartbeat":     {[2]metav1.Object{node(0), node(10 * time.Second)}, 0},
		"node changed":  {[2]metav1.Object{node(0, tainted), node(0)}, 2},
		"pod changed":   {[2]metav1.Object{pod(false), pod(true)}, 2},
		"pod unchanged": {[2]metav1.Object{pod(true), rewritten}, 0},
	} {
		b.Run(name, func(b *testing.B) { observe(b, c.states, c.news) })
	}
}

// observe has a feed see two states of a node or of its pod in turns.
func observe(b *testing.B, states [2]metav1.Object, news int) {
	f := startBenchFeed(b, everything(), busyNode(benchNamed, time.Unix(1700000000, 0)), testPod("agent-x", "pod", benchNamed, true))
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
	for ; sent < 10; sent++ { // what is new at first is known then
		send(sent)
	}
	b.ReportAllocs()
	for b.Loop() {
		send(sent)
		sent++
	}
	b.StopTimer()
	for range 2 - sent%2 { // the last of them shows that the ones before are worked off
		send(sent)
		sent++
	}
	told := f.told.nodes.Load()
	if least, most := int64((sent-1)*news/2), int64(sent*news/2); told < least || told > most {
		b.Errorf("after %d events a node was to be looked at %d times, want %d to %d", sent, told, least, most)
	}
}

// BenchmarkGather is what gathering all that is known of a node costs, for one
// decision.
func BenchmarkGather(b *testing.B) {
	for _, queries := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("queries=%d", queries), func(b *testing.B) {
			needed := everything()
			for i := 1; i < queries; i++ {
				needed.Pods = append(needed.Pods, gate.PodQuery{Namespace: "ns", Selector: fmt.Sprintf("app=%d", i)})
			}
			f := startBenchFeed(b, needed, busyNode(benchNamed, time.Unix(1700000000, 0)), testPod("agent-x", "pod", benchNamed, true))
			b.ReportAllocs()
			for b.Loop() {
				if facts, ok := f.Facts(benchNamed); !ok || len(facts.Pods) != queries {
					b.Fatalf("facts of %d queries, %v", len(facts.Pods), ok)
				}
			}
		})
	}
}

// transition is a node with so many gates that are to be opened, or closed.
func transition(gates int, before, after string) (*gate.Node, *gate.Decision) {
	n := &gate.Node{Name: "a", UID: "0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11", BootID: "4c0e7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a12"}
	n.Taints = []corev1.Taint{taint("example.com/foreign", "yes", corev1.TaintEffectNoSchedule)}
	d := &gate.Decision{Taints: n.Taints, Records: map[string]string{}, Changes: true}
	if before != "" {
		n.HasAnnotations, n.Records = true, map[string]string{}
	}
	for i := range gates {
		name := fmt.Sprintf("gate-%02d", i)
		own := v1alpha1.Taint{Key: name + ".example/not-ready", Effect: corev1.TaintEffectNoSchedule}
		t := taint(own.Key, "", own.Effect)
		record := gate.Record{Reason: v1alpha1.ReasonSignalsHold, Boot: n.BootID, Source: v1alpha1.SourceCRD, Since: time.Unix(1700000000, 0)}
		record.Taint = gate.TaintText(own)
		if before != "" {
			record.State = before
			n.Records[name] = record.String()
		}
		record.State = after
		d.Records[name] = record.String()
		if after == v1alpha1.StateOpen {
			n.Taints = append(n.Taints, t)
		} else {
			d.Taints = append(d.Taints[:len(d.Taints):len(d.Taints)], t)
		}
		d.Verdicts = append(d.Verdicts, gate.Verdict{Gate: name, Before: before, After: after})
	}
	return n, d
}

// BenchmarkPatch is what composing a write costs.
func BenchmarkPatch(b *testing.B) {
	for name, c := range map[string]struct {
		gates         int
		before, after string
	}{
		"open":           {1, v1alpha1.StateClosed, v1alpha1.StateOpen},
		"close":          {1, v1alpha1.StateOpen, v1alpha1.StateClosed},
		"birth":          {1, "", v1alpha1.StateClosed},
		"open/gates=20":  {20, v1alpha1.StateClosed, v1alpha1.StateOpen},
		"birth/gates=20": {20, "", v1alpha1.StateClosed},
	} {
		n, d := transition(c.gates, c.before, c.after)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if patch, err := Patch(n, d); err != nil || len(patch) == 0 {
					b.Fatalf("no patch: %v", err)
				}
			}
		})
	}
}

// What BenchmarkPatch composes is what it says.
func TestTransition(t *testing.T) {
	for _, after := range []string{v1alpha1.StateOpen, v1alpha1.StateClosed} {
		n, d := transition(2, map[string]string{v1alpha1.StateOpen: v1alpha1.StateClosed}[after], after)
		patch, err := Patch(n, d)
		operation := map[string]string{v1alpha1.StateOpen: `"remove"`, v1alpha1.StateClosed: `"/spec/taints/-"`}[after]
		if got := strings.Count(string(patch), operation); err != nil || got != 2 {
			t.Errorf("to %s: %s %d times, want 2: %v\n%s", after, operation, got, err, patch)
		}
	}
}
