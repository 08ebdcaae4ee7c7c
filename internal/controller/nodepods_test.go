// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
)

// nodePods has the pods of the nodes of a world. It implements boundpods.Client.
type nodePods struct {
	mu     sync.Mutex
	byNode map[string][]gate.BoundPod
	lists  []time.Time
	// onList, if set, is called before a list, and may return its error. evict, if set,
	// returns the outcome of an eviction, with the lock held. evicted counts evictions by pod.
	onList  func(node string) error
	evict   func(p *gate.BoundPod) boundpods.Eviction
	evicted map[string]int
}

func newNodePods() *nodePods {
	return &nodePods{byNode: map[string][]gate.BoundPod{}, evicted: map[string]int{}}
}

// List implements boundpods.Client.
func (p *nodePods) List(_ context.Context, node string) ([]gate.BoundPod, error) {
	if p.onList != nil {
		if err := p.onList(node); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists = append(p.lists, time.Now())
	return slices.Clone(p.byNode[node]), nil
}

// Evict implements boundpods.Client.
func (p *nodePods) Evict(_ context.Context, pod *gate.BoundPod) (boundpods.Eviction, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evicted[pod.Name]++
	outcome := boundpods.Evicted
	if p.evict != nil {
		outcome = p.evict(pod)
	}
	if outcome != boundpods.Evicted {
		return outcome, fmt.Errorf("evicting: %s", outcome)
	}
	for node := range p.byNode {
		p.byNode[node] = slices.DeleteFunc(p.byNode[node], func(o gate.BoundPod) bool { return o.UID == pod.UID })
	}
	return outcome, nil
}

func (p *nodePods) set(node string, pods ...gate.BoundPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byNode[node] = pods
}

// on returns the pods of a node.
func (p *nodePods) on(node string) []gate.BoundPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.byNode[node])
}

// listTimes returns the times of all lists.
func (p *nodePods) listTimes() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lists)
}

func (p *nodePods) listed() int { return len(p.listTimes()) }

// evictions returns the number of evictions by pod.
func (p *nodePods) evictions() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.evicted)
}

// allowing grants all permissions in reviews, except those for which lack returns true.
func allowingAllBut(lack func(what string) bool) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
		review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
		if !ok {
			return controllertest.PolicyOf(ctx, c, obj, o...)
		}
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = lack == nil || !lack(strings.TrimSuffix(a.Verb+" "+a.Resource+"/"+a.Subresource, "/"))
		return nil
	}}
}

// closesIfIdle makes a gate close existing nodes if they are idle, without a budget.
func closesIfIdle(s *v1alpha1.NodeGateSpec) {
	s.ExistingNodes = v1alpha1.ExistingCloseIfIdle
	s.Budget.MaxReclosed = new(intstr.FromString("100%"))
}

func unfit(_ int, n *gate.Node) { delete(n.Labels, "fit") }

// newUnfitWorld returns a world of nodes that must be closed if they are idle.
func newUnfitWorld(t *testing.T, nodes int) (*world, *nodePods) {
	w, pods := newWorld(t, controllertest.Gate("gate", closesIfIdle)), newNodePods()
	w.pods = pods
	w.add(nodes, unfit)
	return w, pods
}

var (
	aWorkload = gate.BoundPod{Namespace: "kube-system", Name: "web", UID: "web", Owned: true}
	aDaemon   = gate.BoundPod{Namespace: "monitoring", Name: "daemon", UID: "daemon", Owned: true, Daemon: true}
)

// At most ten idle nodes are closed per second. Busy nodes are not closed.
func TestBackfillIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := newUnfitWorld(t, 100)
		for i := range 100 {
			pods.set(fmt.Sprintf("n%04d", i), aDaemon)
			if i%2 == 0 {
				pods.set(fmt.Sprintf("n%04d", i), aDaemon, aWorkload)
			}
		}
		var closings []time.Time
		before := 0
		w.after = func() {
			if n := w.countClosed(); n > before {
				closings = append(closings, time.Now())
				before = n
			}
		}
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(time.Minute)
		if n := w.closed(); n != 50 || len(closings) != 50 {
			t.Errorf("%d nodes are closed after %d closings, want the 50 idle ones", n, len(closings))
		}
		for name, n := range w.copies() {
			if busy := len(pods.on(name)) == 2; busy == (len(n.Taints) > 0) {
				t.Errorf("node %s is busy: %t, and has taints %v", name, busy, n.Taints)
			}
		}
		for what, times := range map[string][]time.Time{"closings": closings, "lists": pods.listTimes()} {
			for i := range times {
				if j := i + 10; j < len(times) && times[j].Sub(times[i]) < time.Second-time.Millisecond {
					t.Errorf("%s: 11 from %s to %s, want at most 10 per second", what, times[i], times[j])
				}
			}
		}
		// Each closed node is listed a second time.
		if n := pods.listed(); n != 150 {
			t.Errorf("%d lists for 50 busy and 50 idle nodes, want 150", n)
		}
		if n := w.written(); n != 100 {
			t.Errorf("%d writes for 50 idle nodes, want two each: closing and confirmation", n)
		}
	})
}

// A busy node is listed again after ten minutes, however often it is reconciled
// meanwhile.
func TestBusyNodeIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := newUnfitWorld(t, 1)
		pods.set("n0000", aWorkload)
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		for range 9 {
			controllertest.Pass(time.Minute)
			w.change("n0000", func(n *gate.Node) { n.Labels["changed"] = time.Now().String() })
		}
		if n := pods.listed(); n != 1 {
			t.Errorf("%d lists in nine minutes, want one", n)
		}
		pods.set("n0000", aDaemon)
		controllertest.Pass(3 * time.Minute)
		if w.closed() != 1 {
			t.Error("the node has been idle for minutes, and is open")
		}
		w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
		controllertest.Pass(time.Second)
		if w.closed() != 0 {
			t.Error("the node has become fit, and is closed")
		}
	})
}

// If a pod is bound between the list and the taint, the node opens again with the reason
// NotIdle, and is not closed again while the pod exists.
func TestPodBoundBetweenListAndTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := newUnfitWorld(t, 1)
		w.after = func() { pods.set("n0000", aWorkload) }
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(time.Hour)
		if n := w.written(); n != 2 || w.closed() != 0 || len(w.node("n0000").Records) > 0 {
			t.Errorf("%d writes, records %v, want one closing, one opening and no record", n, w.node("n0000").Records)
		}
		if n := testutil.ToFloat64(w.c.metrics.Opens.WithLabelValues("gate", string(v1alpha1.ReasonNotIdle))); n != 1 {
			t.Errorf("%v openings with the reason NotIdle are counted, want 1", n)
		}
	})
}

// If another gate has found the node busy meanwhile, this does not delay the second check,
// which opens it again.
func TestSecondCheckIsNotDelayedByAnotherGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := controllertest.Gate("gate", closesIfIdle)
		w := newWorld(t, first)
		pods := newNodePods()
		w.pods = pods
		w.add(1, unfit)
		w.after = func() { pods.set("n0000", aWorkload) }
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(2500 * time.Millisecond) // it closes within two seconds, and is checked again five seconds later
		other := controllertest.Gate("other", closesIfIdle)
		other.Spec.Taint.Key = "test.nodegate.dev/b"
		w.setGates(true, first, other)
		if w.closed() != 1 {
			t.Fatalf("the node has the taints %v, want that of the first gate", w.node("n0000").Taints)
		}
		controllertest.Pass(time.Minute)
		if w.closed() != 0 {
			t.Errorf("the node is not idle, and still has the taints %v", w.node("n0000").Taints)
		}
	})
}

// Nodes for which no budget is available are not listed, and are reported as throttled.
func TestListsWaitForBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", closesIfIdle, func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = new(intstr.FromInt32(3)) }))
		pods := newNodePods()
		w.pods = pods
		w.add(50, unfit)
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(10 * time.Minute)
		if w.closed() != 3 {
			t.Errorf("%d nodes are closed, want the 3 that the budget allows", w.closed())
		}
		if n := pods.listed(); n > 40 { // several nodes may be listed for the same part of the budget
			t.Errorf("%d lists to close 3 nodes", n)
		}
		if c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionThrottled); c == nil || !strings.Contains(c.Message, "44 more") {
			t.Errorf("the condition Throttled is %+v", c)
		}
	})
}

// A hanging list does not delay openings, not even of another gate on the same node.
func TestListsDoNotDelayOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := controllertest.Gate("other")
		other.Spec.Taint.Key = "test.nodegate.dev/b"
		other.Spec.OpenWhen[0].Label.Key = "other"
		w := newWorld(t, controllertest.Gate("gate", closesIfIdle), other)
		pods := newNodePods()
		w.pods = pods
		hang := make(chan struct{})
		pods.onList = func(string) error { <-hang; return context.DeadlineExceeded }
		w.add(50, func(i int, n *gate.Node) { unfit(i, n); isClosed(n, "other", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		defer close(hang)
		controllertest.Pass(10 * time.Second)
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { n.Labels["other"] = "" })
		}
		controllertest.Pass(time.Millisecond)
		if w.closed() != 0 {
			t.Errorf("%d nodes are still closed", w.closed())
		}
	})
}

// Without the permission to list pods, nothing is closed, and the gate's status describes
// how to grant it. When it is granted, nodes close without a further event.
func TestPermissionToListPodsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := newUnfitWorld(t, 3)
		var mu sync.Mutex
		lacks := true
		pods.onList = func(string) error {
			mu.Lock()
			defer mu.Unlock()
			if lacks {
				return fmt.Errorf("listing: forbidden")
			}
			return nil
		}
		defer w.start(logr.Discard(), allowingAllBut(func(what string) bool {
			mu.Lock()
			defer mu.Unlock()
			return lacks && what == "list pods"
		}))()
		controllertest.Pass(10 * time.Minute)
		ng := w.stored("gate")
		accepted := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionAccepted)
		ready := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
		if accepted.Status != "True" || ready.Status != "False" || ready.Reason != v1alpha1.ReasonPermissionMissing || !strings.Contains(ready.Message, "'nodegate manifests'") {
			t.Errorf("the conditions are %+v and %+v", accepted, ready)
		}
		if w.written() != 0 {
			t.Errorf("%d nodes were written", w.written())
		}
		mu.Lock()
		lacks = false
		mu.Unlock()
		controllertest.Pass(2 * time.Minute)
		if w.closed() != 3 {
			t.Errorf("the permission was granted, and %d nodes are closed, want 3", w.closed())
		}
	})
}
