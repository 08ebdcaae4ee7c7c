// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// largeFleet is a world with many gates, in which one fact changes at a time. Its facts
// are cheap to read.
type largeFleet struct {
	*world
	sets *gate.DaemonSets
}

const (
	largeFleetNodes = 5000
	largeFleetGates = 100
)

// DaemonSets implements NeedsFeed. It returns the same snapshot each time, as a feed does while
// nothing changes.
func (h *largeFleet) DaemonSets() *gate.DaemonSets { return h.sets }

// Facts implements NodeFeed. It returns the pods of every query, as a feed does.
func (h *largeFleet) Facts(node string) (gate.Facts, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pods := make(map[gate.PodQuery][]gate.Pod, len(h.agents))
	for query, found := range h.agents {
		pods[query] = found
	}
	return gate.Facts{Node: h.nodes[node], Zone: gate.Zone{Nodes: largeFleetNodes}, DaemonSets: h.sets, Pods: pods}, true
}

// FactsOf implements NodeFeed.
func (h *largeFleet) FactsOf(node string, n *gate.Needs) (gate.Facts, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pods := make(map[gate.PodQuery][]gate.Pod, len(n.Pods))
	for _, query := range n.Pods {
		pods[query] = h.agents[query]
	}
	return gate.Facts{Node: h.nodes[node], Zone: gate.Zone{Nodes: largeFleetNodes}, DaemonSets: h.sets, Pods: pods}, true
}

// newLargeFleet returns a fleet in which every gate is open on every node, after the first
// reconcile of all nodes. Half of the gates wait for one condition each, and half for a
// daemon.
func newLargeFleet(b *testing.B) *largeFleet {
	b.Helper()
	gates := make([]*v1alpha1.NodeGate, largeFleetGates)
	h := &largeFleet{world: &world{nodes: map[string]gate.Node{}, gates: gates, complete: true, agents: map[gate.PodQuery][]gate.Pod{}}, sets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}}}
	for i := range gates {
		name := fmt.Sprintf("gate-%03d", i)
		gates[i] = controllertest.Gate(name, func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Key = "test.nodegate.dev/" + name
			s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: name, Status: "True"}}
			if i%2 == 1 {
				s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: name}}
				h.addDaemon(name)
			}
			s.Timing.CloseAfterSeconds = nil // two minutes
		})
		gates[i].CreationTimestamp = metav1.NewTime(time.Now().Add(-48 * time.Hour))
	}
	h.add(largeFleetNodes, func(_ int, n *gate.Node) {
		for _, ng := range gates {
			n.Conditions = append(n.Conditions, gate.Condition{Type: ng.Name, Status: corev1.ConditionTrue, Transition: time.Now().Add(-time.Hour)})
			isOpen(n, ng.Name)
		}
	})
	h.c = New(Options{Log: logr.Discard()}, controllertest.Client(b, interceptor.Funcs{}), newTestMetrics())
	h.c.Attach(h, h.world, nil)
	b.Cleanup(h.c.queue.ShutDown)
	h.c.refreshGates(nil)
	h.c.leading.Store(true)
	for name := range h.nodes {
		h.c.workOn(b.Context(), name)
	}
	return h
}

func (h *largeFleet) addDaemon(name string) {
	ds := gate.DaemonSet{
		Namespace: "kube-system", Name: name, UID: types.UID(name), Pods: gate.PodQuery{Namespace: "kube-system", Selector: "app=" + name},
		PodLabels: labels.Set{"app": name}, Affinity: nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{}),
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	h.sets.Items = append(h.sets.Items, ds)
	h.agents[ds.Pods] = []gate.Pod{{UID: "p", Name: name, Owner: ds.UID, Created: time.Now().Add(-time.Minute), Ready: true, ReadySince: time.Now().Add(-time.Minute)}}
}

// flip inverts one condition of a node, or the readiness of one pod.
func (h *largeFleet) flip(node, gateName string, pod bool) gate.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pod {
		query := gate.PodQuery{Namespace: "kube-system", Selector: "app=" + gateName}
		changed := slices.Clone(h.agents[query])
		changed[0].Ready, changed[0].ReadySince = !changed[0].Ready, time.Now()
		h.agents[query] = changed
		return gate.ChangeOf(gate.Aspect{Kind: gate.AspectPods, Pods: query})
	}
	n := h.nodes[node]
	n.Conditions = slices.Clone(n.Conditions)
	i := slices.IndexFunc(n.Conditions, func(c gate.Condition) bool { return c.Type == gateName })
	was := n.Conditions[i].Status
	n.Conditions[i].Transition = time.Now()
	if n.Conditions[i].Status = corev1.ConditionTrue; was == corev1.ConditionTrue {
		n.Conditions[i].Status = corev1.ConditionFalse
	}
	h.nodes[node] = n
	return gate.ChangeOf(gate.Aspect{Kind: gate.AspectCondition, Name: gateName})
}

// BenchmarkFlip measures the cost of one change of a fact that one of 100 gates reads, in
// a fleet of 5,000 nodes: gathering facts and deciding ("decision"), or the whole
// reconcile without a write ("look"). "everything" is the same if it is not known what has
// changed.
func BenchmarkFlip(b *testing.B) {
	h := newLargeFleet(b)
	for _, what := range []struct {
		name, gate string
		pod        bool
	}{{"condition", "gate-042", false}, {"pod", "gate-043", true}} {
		run := func(name string, known, whole bool) {
			b.Run(what.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				signals := 0
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					node := fmt.Sprintf("n%04d", i/2%largeFleetNodes)
					if change := h.flip(node, what.gate, what.pod); known {
						h.c.nodes.addChange(node, change)
					}
					b.StartTimer()
					if whole {
						h.c.workOn(b.Context(), node)
						continue
					}
					signals += h.decision(b, node)
				}
				if !whole {
					b.ReportMetric(float64(signals)/float64(b.N), "signals/op")
				}
			})
		}
		run("decision", true, false)
		run("decision of everything", false, false)
		run("look", true, true)
		run("look at everything", false, true)
	}
	if h.written() > 0 {
		b.Errorf("%d nodes were written", h.written())
	}
}

// decision gathers facts, decides, and marks the node as settled again. It returns the
// number of evaluated signals; each gate has one.
func (h *largeFleet) decision(b *testing.B, node string) (signals int) {
	now := h.c.clock.Now()
	set, until := h.c.affected(node, h.c.set.Load(), now)
	facts, ok := h.c.gather(node, set)
	if !ok {
		b.Fatal("the node is not known")
	}
	d, _ := h.c.decide(set, &facts, now)
	if !d.Settled {
		b.Fatal("the node is not settled")
	}
	h.c.nodes.settle(node, set.Seq, until)
	for i := range d.Verdicts {
		signals += len(d.Verdicts[i].Readings)
	}
	return signals
}
