// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// A new leader needs seconds to probe many gates. Until then, they remain Ready.
func TestGatesRemainReadyAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, last = 40, "gate-39"
		w := newWorld(t)
		for i := range many {
			w.gates = append(w.gates, controllertest.Gate(fmt.Sprintf("gate-%02d", i), func(s *v1alpha1.NodeGateSpec) {
				s.NodeSelector.MatchLabels = map[string]string{"pool": fmt.Sprint(i)}
			}))
		}
		isReady := func(name string) bool {
			return meta.IsStatusConditionTrue(w.stored(name).Status.Conditions, v1alpha1.ConditionReady)
		}
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(20 * time.Second)
		for i, ng := range w.gates {
			if !isReady(ng.Name) {
				t.Fatalf("gate %s is not Ready: %+v", ng.Name, w.stored(ng.Name).Status.Conditions)
			}
			stored := w.stored(ng.Name)
			w.mu.Lock()
			w.gates[i] = stored
			w.mu.Unlock()
		}
		stop()

		w.tookOver = true
		defer w.start(logr.Discard(), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if node, probe := obj.(*corev1.Node); probe && node.Name == "nodegate-probe-"+last {
				return nil // without closing the gate
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		}})()
		controllertest.Pass(1050 * time.Millisecond)
		for _, ng := range w.gates {
			if !isReady(ng.Name) {
				t.Errorf("gate %s is not Ready: %+v", ng.Name, w.stored(ng.Name).Status.Conditions)
			}
		}
		if n := testutil.CollectAndCount(w.c.metrics.Proved); n == 0 || n == many {
			t.Errorf("%d of %d gates have a series of proofs, want only those that were probed", n, many)
		}
		controllertest.Pass(20 * time.Second)
		for _, ng := range w.gates {
			if isReady(ng.Name) == (ng.Name == last) {
				t.Errorf("after the probe, gate %s: %+v", ng.Name, w.stored(ng.Name).Status.Conditions)
			}
		}
		for _, e := range w.events() {
			if e.Reason == v1alpha1.EventNotReady && e.Regarding.Name != last {
				t.Errorf("gate %s has an Event %s: %s", e.Regarding.Name, e.Reason, e.Note)
			}
		}
		if n := testutil.CollectAndCount(w.c.metrics.Proved); n != many {
			t.Errorf("%d of %d gates have a series of proofs", n, many)
		}
	})
}

// slowNode makes the next leader take this long to read a node.
func (w *world) slowNode(name string, d time.Duration) {
	w.reading = func(node string) {
		if node == name {
			<-time.After(d)
		}
	}
}

// handOver stops the leader, and returns the gate as it is then stored. The next leader finds
// that.
func (w *world) handOver(stop func()) *v1alpha1.NodeGate {
	w.t.Helper()
	stop()
	before := w.stored("gate")
	w.gates, w.tookOver = []*v1alpha1.NodeGate{before}, true
	return before
}

// A new leader needs seconds to evaluate a large fleet. Until it has, it neither reports that
// problems of nodes have ended, nor counts a part of the fleet.
func TestStatusIsKeptUntilTheFleetIsEvaluated(t *testing.T) {
	const problem = "n0000"
	overdue := func(i int, n *gate.Node) {
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		if i == 0 {
			delete(n.Labels, "fit")
		}
	}
	contended := func(i int, n *gate.Node) {
		isOpen(n, "gate")
		if r, err := gate.ParseRecord(n.Records["gate"]); i == 0 && err == nil {
			r.State, r.Reason, r.Fought, r.FoughtAt = v1alpha1.StateClosed, v1alpha1.ReasonBirth, 9, time.Now()
			n.Records["gate"] = r.String()
			delete(n.Labels, "fit")
		}
	}
	late := func(w *world) { w.slowNode(problem, 3*time.Second) }
	for name, c := range map[string]struct {
		add     func(int, *gate.Node)
		denied  bool
		slow    func(*world)
		problem string // the condition, and its reason
	}{
		"overdue":                   {overdue, false, late, "Overdue: DeadlinePassed"},
		"overdue, no node is known": {overdue, false, func(w *world) { w.setUnsynced(true) }, "Overdue: DeadlinePassed"},
		"contended":                 {contended, false, late, "Contended: Contended"},
		"write denied":              {func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) }, true, late, "Ready: WriteDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate", withDeadline(60, v1alpha1.DeadlineKeepClosed)))
				w.add(5, c.add)
				w.fail = func(node string) error {
					if c.denied && node == problem {
						return write.ErrDenied
					}
					return nil
				}
				stop := w.start(logr.Discard(), interceptor.Funcs{})
				controllertest.Pass(20 * time.Second)
				before := w.handOver(stop)
				c.slow(w)
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				kind, reason, _ := strings.Cut(c.problem, ": ")
				if was := meta.FindStatusCondition(before.Status.Conditions, kind); was == nil || was.Reason != reason {
					t.Fatalf("want %s, the conditions are %+v", c.problem, before.Status.Conditions)
				}
				for range 8 {
					controllertest.Pass(500 * time.Millisecond)
					w.wantStatus(t, before)
				}
				w.setUnsynced(false)
				for _, node := range w.NodeNames() {
					w.c.NodeChanged(node, gate.Everything())
				}
				controllertest.Pass(20 * time.Second)
				w.wantStatus(t, before)
				w.wantEvents(t, "NodeGate")
			})
		})
	}
}

// The gate's status names a node whose writes fail for a minute, such as one for which a webhook does
// not answer: nobody else may see that the gate does not open there. It does not for shorter failures.
// A new leader does not withdraw this: it cannot know for how long writes have failed.
func TestFailingWriteIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 3)
		failure := apierrors.NewInternalError(errors.New("failed calling webhook"))
		w.writes(func(node string) error {
			if node != "n0000" {
				return nil
			}
			return failure
		})
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		ready := func(reason string, contains ...string) *metav1.Condition {
			t.Helper()
			c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
			if c == nil || c.Reason != reason {
				t.Fatalf("condition Ready is %+v, want the reason %s", c, reason)
			}
			for _, text := range contains {
				if !strings.Contains(c.Message, text) {
					t.Errorf("the message of Ready is %q, want it to contain %q", c.Message, text)
				}
			}
			return c
		}
		controllertest.Pass(failureReported - time.Second)
		ready(v1alpha1.ReasonReady)
		waiting := w.stored("gate").Status.Waiting
		if len(waiting) != 1 || waiting[0].Reason != v1alpha1.ReasonWriteFailing || !strings.Contains(waiting[0].Message, "failed calling webhook") {
			t.Errorf("waiting: %+v, want the error", waiting)
		}
		controllertest.Pass(retryMax + 10*time.Second)
		since := ready(v1alpha1.ReasonWriteFailing, "n0000: ", "failed calling webhook").LastTransitionTime
		w.handOver(stop)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		for range 2 * int(retryMax.Seconds()) {
			controllertest.Pass(time.Second)
			if now := ready(v1alpha1.ReasonWriteFailing, "n0000: ", "failed calling webhook"); !now.LastTransitionTime.Equal(&since) {
				t.Errorf("the condition has changed at %s", now.LastTransitionTime)
			}
		}
		w.writes(func(string) error { return nil })
		controllertest.Pass(retryMax + 2*time.Second)
		ready(v1alpha1.ReasonReady)
	})
}

// A gate without a status, and one that is edited after the fleet has been evaluated, do not wait for
// the evaluation of the last node.
func TestStatusDoesNotWaitForTheLastNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(5, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(20 * time.Second)
		before := w.handOver(stop)
		w.gates = append(w.gates, controllertest.Gate("new"))
		w.slowNode("n0000", 20*time.Second)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(3 * time.Second)
		if status := w.stored("new").Status; status.Nodes.Selected != 4 || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady) == nil {
			t.Errorf("the status of a new gate is %+v", status)
		}
		controllertest.Pass(time.Minute)
		edited := before.DeepCopy()
		edited.Generation++
		w.setGates(true, edited, controllertest.Gate("new"))
		controllertest.Pass(3 * time.Second)
		if w.c.ledger.IsEvaluated("gate") {
			t.Fatal("the last node does not delay the evaluation")
		}
		if status := w.stored("gate").Status; status.ObservedGeneration != edited.Generation {
			t.Errorf("the status of an edited gate is %+v", status)
		}
	})
}

// wantStatus checks that the status and the gauges of the gate are as before. Its transition times
// are part of the status.
func (w *world) wantStatus(t *testing.T, before *v1alpha1.NodeGate) {
	t.Helper()
	if diff := cmp.Diff(before.Status, w.stored("gate").Status); diff != "" {
		t.Errorf("the status has changed: %s", diff)
	}
	m := w.c.metrics
	if testutil.CollectAndCount(m.Conditions) == 0 { // nothing has been reported yet
		return
	}
	for state, want := range map[string]int32{"selected": before.Status.Nodes.Selected, "closed": before.Status.Nodes.Closed, "overdue": before.Status.Nodes.Overdue} {
		if got := testutil.ToFloat64(m.Nodes.WithLabelValues("gate", state)); got != float64(want) {
			t.Errorf("%v nodes are %s in metrics, want %d", got, state, want)
		}
	}
	for _, c := range before.Status.Conditions {
		if got := testutil.ToFloat64(m.Conditions.WithLabelValues("gate", c.Type)) == 1; got != (c.Status == metav1.ConditionTrue) {
			t.Errorf("condition %s is %t in metrics", c.Type, got)
		}
	}
}
