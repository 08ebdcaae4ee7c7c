// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// countPatches counts writes of status, and makes them fail while fail is set.
func countPatches(n *atomic.Int32, fail *atomic.Bool) interceptor.Funcs {
	return interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
		n.Add(1)
		if fail.Load() {
			return errors.New("no response")
		}
		return c.SubResource(sub).Patch(ctx, obj, p, o...)
	}}
}

func TestStatusIsWrittenOnlyWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var patches atomic.Int32
		var fail atomic.Bool
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(50, func(i int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		stop := w.start(logr.Discard(), countPatches(&patches, &fail))
		controllertest.Pass(10 * time.Second)
		before := w.stored("gate")
		if len(before.Status.Waiting) != fleet.WaitingMax || before.Status.Nodes.Closed != 50 {
			t.Errorf("status: %+v", before.Status)
		}
		written := patches.Load()
		w.setGates(true, before) // the feed delivers the write
		for range 60 {
			w.c.GatesChanged()
			controllertest.Pass(10 * time.Second)
		}
		if n := patches.Load() - written; n != 0 {
			t.Errorf("%d writes in ten minutes without changes", n)
		}
		stop()

		// The next leader finds a correct status. Its copy of the gate is as old as the last
		// change of the spec.
		w.gates = []*v1alpha1.NodeGate{before}
		patches.Store(0)
		next := countPatches(&patches, &fail)
		answer := allowingAllBut(func(string) bool { return false }).Create
		next.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if _, probe := obj.(*corev1.Node); probe {
				<-time.After(statusInterval * 3 / 4) // so that the first report waits for the proof
			}
			return answer(ctx, c, obj, o...)
		}
		defer w.start(logr.Discard(), next)()
		w.setGates(true, controllertest.Gate("gate"))
		controllertest.Pass(statusInterval / 2)
		w.mu.Lock()
		w.gates = []*v1alpha1.NodeGate{before}
		w.mu.Unlock()
		controllertest.Pass(20 * time.Second)
		after := w.stored("gate")
		for _, c := range before.Status.Conditions {
			if now := meta.FindStatusCondition(after.Status.Conditions, c.Type); now == nil || !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
				t.Errorf("condition %s was %+v, and is %+v under the next leader", c.Type, c, now)
			}
		}
	})
}

// A status that another writer has replaced, such as a restore or the delayed write of a previous
// leader, is written again, but not more often than all nodes are reconciled.
func TestReplacedStatusIsWrittenAgain(t *testing.T) {
	const watched, step = 25 * time.Minute, 10 * time.Second
	replace := func(w *world) {
		ng := w.stored("gate")
		ng.Status.Nodes = v1alpha1.NodeCounts{Closed: 5}
		c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonFeedsNotSynced
		if err := w.c.client.Status().Update(t.Context(), ng); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		act    func(*world)
		every  time.Duration
		behind time.Duration // the delay of the feed
		writes int32
	}{
		"replaced once":            {replace, watched, 0, 1},
		"replaced again and again": {replace, step, 0, 2},
		"another field changed": {func(w *world) {
			ng := w.stored("gate")
			ng.Labels = map[string]string{"a": "b"}
			if err := w.c.client.Update(t.Context(), ng); err != nil {
				t.Error(err)
			}
		}, watched, 0, 0},
		"written while the feed is behind": {func(w *world) {
			w.remove("n0000")
			w.c.NodeChanged("n0000", gate.Everything())
		}, watched, 5 * time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var patches atomic.Int32
				w := newWorld(t, controllertest.Gate("gate"))
				w.add(5, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
				defer w.start(logr.Discard(), countPatches(&patches, &atomic.Bool{}))()
				controllertest.Pass(5 * time.Second)
				written, past := patches.Load(), []*v1alpha1.NodeGate{w.stored("gate")}
				for at := time.Duration(0); at < watched; at += step {
					w.mu.Lock()
					w.gates = past[max(0, len(past)-1-int(c.behind/step)):][:1]
					w.mu.Unlock()
					if at%c.every == 0 {
						c.act(w)
					}
					controllertest.Pass(step)
					past = append(past, w.stored("gate"))
				}
				if n := patches.Load() - written; n != c.writes {
					t.Errorf("%d writes in %s, want %d", n, watched, c.writes)
				}
				status := w.stored("gate").Status
				if right := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) && status.Nodes.Closed == 0; right != (c.every == watched) {
					t.Errorf("in the end, the status is %+v", status)
				}
			})
		})
	}
}

// A leader reports as soon as it knows the whole fleet, and that the API server closes new
// nodes. It does not report less before.
func TestFirstStatusIsCompleteAndDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var patches atomic.Int32
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(50, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		const probe = 200 * time.Millisecond
		funcs := countPatches(&patches, &atomic.Bool{})
		funcs.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			<-time.After(probe) // to the API server
			return controllertest.PolicyOf(ctx, c, obj, o...)
		}
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(statusInterval * 9 / 10)
		status := w.stored("gate").Status
		if n := patches.Load(); n != 1 || status.Nodes.Open != 50 || !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("before the interval was over, %d writes, and the status is %+v", n, status)
		}
	})
}

// A new leader does not report a gate as ready until it has reviewed the permissions that
// the gate requires.
func TestFirstStatusKnowsMissingPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", publishing))
		w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		var patches atomic.Int32
		funcs := countPatches(&patches, &atomic.Bool{})
		answer := allowingAllBut(func(what string) bool { return what == "patch nodes/status" }).Create
		funcs.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			<-time.After(50 * time.Millisecond) // the API server's time for probes and reviews
			return answer(ctx, c, obj, o...)
		}
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(statusInterval * 9 / 10)
		ready := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonPermissionMissing || patches.Load() != 1 {
			t.Errorf("after %d writes, the condition is %+v", patches.Load(), ready)
		}
	})
}

// Flux, Helm's --wait and others determine readiness with kstatus, without knowing gates.
func TestStatusIsKstatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate")
		ng.Generation = 1
		w := newWorld(t, ng)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		stored := w.stored("gate")
		kstatusOf := func(change func(*v1alpha1.NodeGate)) kstatus.Status {
			t.Helper()
			object := stored.DeepCopy()
			change(object)
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				t.Fatal(err)
			}
			result, err := kstatus.Compute(&unstructured.Unstructured{Object: content})
			if err != nil {
				t.Fatal(err)
			}
			return result.Status
		}
		if got := kstatusOf(func(*v1alpha1.NodeGate) {}); got != kstatus.CurrentStatus {
			t.Errorf("a gate that is Ready is %s: %+v", got, stored.Status)
		}
		if got := kstatusOf(func(ng *v1alpha1.NodeGate) { ng.Generation++ }); got != kstatus.InProgressStatus {
			t.Errorf("a gate whose spec has changed is %s", got)
		}
		if got := kstatusOf(func(ng *v1alpha1.NodeGate) {
			meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady).Status = metav1.ConditionFalse
		}); got != kstatus.InProgressStatus {
			t.Errorf("a gate that is not Ready is %s", got)
		}
	})
}

func TestStatusWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var patches atomic.Int32
		var fail atomic.Bool
		fail.Store(true)
		var log controllertest.LogLines
		w := newWorld(t, controllertest.Gate("gate"))
		defer w.start(log.Logger(), countPatches(&patches, &fail))()
		controllertest.Pass(10 * time.Minute)
		if n := patches.Load(); n > 20 {
			t.Errorf("%d attempts in ten minutes, want at most 20", n)
		}
		if n := strings.Count(strings.Join(log.All(), "\n"), "cannot write status"); n != 1 {
			t.Errorf("the failure was logged %d times, want once", n)
		}
		fail.Store(false)
		controllertest.Pass(2 * time.Minute)
		if !meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady) {
			t.Error("the status was not written when writes succeeded again")
		}
	})
}

// Metrics do not depend on whether the status can be written.
func TestMetricsWhileStatusWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var patches atomic.Int32
		var fail atomic.Bool
		fail.Store(true)
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(5, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), countPatches(&patches, &fail))()
		controllertest.Pass(10 * time.Minute)
		failed := patches.Load()
		for failed == patches.Load() { // the next attempt is in a minute
			controllertest.Pass(time.Second)
		}
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
		}
		controllertest.Pass(5 * time.Second)
		for state, want := range map[string]float64{"open": 5, "closed": 0} {
			if got := testutil.ToFloat64(w.c.metrics.Nodes.WithLabelValues("gate", state)); got != want {
				t.Errorf("%v nodes are %s in metrics, want %v", got, state, want)
			}
		}
	})
}

// Gates are kept if their CustomResourceDefinition is deleted. Their status cannot be written then,
// which is not logged, and attempted with a backoff.
func TestStatusOfADeletedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log controllertest.LogLines
		var patches atomic.Int32
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(log.Logger(), countPatches(&patches, &atomic.Bool{}))()
		controllertest.Pass(5 * time.Second)
		if err := w.c.client.Delete(t.Context(), controllertest.Gate("gate")); err != nil {
			t.Fatal(err)
		}
		patches.Store(0)
		w.remove("n0000") // changes the status
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(10 * time.Minute)
		if n := patches.Load(); n < 5 || n > 20 {
			t.Errorf("%d attempts in ten minutes, want 5 to 20", n)
		}
		for _, line := range log.All() {
			if strings.Contains(line, "cannot write") {
				t.Errorf("logged: %s", line)
			}
		}
	})
}

// A write replaces the whole status, including lists and counts.
func TestStatusIsReplacedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		if len(w.stored("gate").Status.Waiting) != 1 {
			t.Fatalf("status: %+v", w.stored("gate").Status)
		}
		w.remove("n0000")
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(5 * time.Second)
		if status := w.stored("gate").Status; len(status.Waiting) != 0 || status.Nodes != (v1alpha1.NodeCounts{}) {
			t.Errorf("without nodes, the status is %+v", status)
		}
	})
}

func TestSummaryIsOfConstantSize(t *testing.T) {
	ledger, now := fleet.NewLedger(), time.Now()
	for i := range 1000 {
		ledger.Set(fmt.Sprintf("n%04d", i), []fleet.GateState{{
			Gate: "gate", Selected: true, State: v1alpha1.StateClosed, Since: now.Add(time.Duration((i*7919)%1000) * -time.Second),
			Throttled: true, Signal: "agent", Denied: strings.Repeat("no ", 100), Reading: gate.Reading{Reason: v1alpha1.ReadingPodNotReady, Subject: strings.Repeat("x", 1000)},
		}}, 1)
	}
	s := ledger.Summary("gate")
	if len(s.Waiting) != fleet.WaitingMax || len(s.Waiting[0].Message) != 512 {
		t.Errorf("%d nodes in waiting, the first with a message of %d bytes; want %d and 512", len(s.Waiting), len(s.Waiting[0].Message), fleet.WaitingMax)
	}
	if !slices.IsSortedFunc(s.Waiting, func(a, b v1alpha1.WaitingNode) int { return a.Since.Compare(b.Since.Time) }) {
		t.Errorf("not sorted by waiting time: %v", s.Waiting)
	}
	if oldest := now.Add(-999 * time.Second).Truncate(time.Second); !s.Waiting[0].Since.Time.Equal(oldest) {
		t.Errorf("the first node waits since %s, want %s", s.Waiting[0].Since, oldest)
	}
	if got := s.Throttled.String(); got != "n0000, n0001, n0002 and 997 more" {
		t.Errorf("throttled nodes are %q", got)
	}
	if n := strings.Count(s.Lost, "signal agent: "); n != fleet.FewMax || len(s.Lost) > fleet.FewMax*600 {
		t.Errorf("the lost signals of %d nodes have %d bytes, want %d nodes and a limited size", n, len(s.Lost), fleet.FewMax)
	}
}

// BenchmarkReport measures the summaries of one second in the worst case: a node of every
// gate has changed.
func BenchmarkReport(b *testing.B) {
	const gates, nodes = 200, 5000
	ledger := fleet.NewLedger()
	all := make([]fleet.GateState, gates)
	for i := range nodes {
		for g := range all {
			all[g] = fleet.GateState{Gate: fmt.Sprintf("gate-%03d", g), Selected: true, State: v1alpha1.StateOpen, Since: time.Unix(int64(i), 0)}
		}
		ledger.Set(fmt.Sprintf("n%04d", i), all, 1)
	}
	for i := 0; b.Loop(); i++ {
		for g := range all {
			all[g].Since = time.Unix(int64(i), 1000)
		}
		ledger.Set("n0000", all, 1)
		for g := range all {
			ledger.Summary(all[g].Gate)
		}
	}
}

// A failing feed affects only the gates that need it.
func TestFailingFeedAffectsOnlyItsGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("other"), controllertest.Gate("dra", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen = []v1alpha1.Signal{{Name: "gpus", SignalSource: v1alpha1.SignalSource{
				ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: "gpu.example.com"},
			}}}
		}))
		w.feeds = []reflector.Status{{Name: "gpu.example.com", Err: errors.New("no such kind")}}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		c := meta.FindStatusCondition(w.stored("dra").Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != v1alpha1.ReasonFeedsNotSynced || !strings.Contains(c.Message, "no such kind") {
			t.Errorf("the gate that needs the feed: %+v", c)
		}
		if other := w.stored("other").Status.Conditions; !meta.IsStatusConditionTrue(other, v1alpha1.ConditionReady) {
			t.Errorf("another gate is not Ready: %+v", other)
		}
	})
}
