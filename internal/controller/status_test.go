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
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// countPatches counts writes of status, and has them fail while fail is set.
func countPatches(n *atomic.Int32, fail *atomic.Bool) interceptor.Funcs {
	return interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
		n.Add(1)
		if fail.Load() {
			return errors.New("no answer")
		}
		return c.SubResource(sub).Patch(ctx, obj, p, o...)
	}}
}

func TestStatusIsWrittenOnlyWhenItChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var patches atomic.Int32
		var fail atomic.Bool
		w := newWorld(t, testGate("gate"))
		w.add(50, func(i int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		stop := w.start(logr.Discard(), countPatches(&patches, &fail))
		pass(10 * time.Second)
		before := w.stored("gate")
		if len(before.Status.Waiting) != waitingMax || before.Status.Nodes.Closed != 50 {
			t.Errorf("status: %+v", before.Status)
		}
		written := patches.Load()
		for range 60 {
			w.c.GatesChanged()
			pass(10 * time.Second)
		}
		if n := patches.Load() - written; n != 0 {
			t.Errorf("%d writes within ten minutes in which nothing changed", n)
		}
		stop()

		// The next leader finds everything as it should be. Its copy of the gate
		// was made when the spec changed last.
		w.gates = []*v1alpha1.NodeGate{before}
		patches.Store(0)
		defer w.start(logr.Discard(), countPatches(&patches, &fail))()
		w.setGates(true, testGate("gate"))
		pass(statusInterval / 2)
		w.mu.Lock()
		w.gates = []*v1alpha1.NodeGate{before}
		w.mu.Unlock()
		pass(20 * time.Second)
		after := w.stored("gate")
		for _, c := range before.Status.Conditions {
			if now := meta.FindStatusCondition(after.Status.Conditions, c.Type); now == nil || !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
				t.Errorf("condition %s was %+v, and is %+v for the next leader", c.Type, c, now)
			}
		}
	})
}

// Flux, Helm's --wait and others judge by kstatus, and by nothing that they would
// have to know of gates.
func TestStatusIsKstatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ng := testGate("gate")
		ng.Generation = 1
		w := newWorld(t, ng)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		pass(10 * time.Second)
		stored := w.stored("gate")
		judged := func(change func(*v1alpha1.NodeGate)) kstatus.Status {
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
		if got := judged(func(*v1alpha1.NodeGate) {}); got != kstatus.CurrentStatus {
			t.Errorf("a gate that is Ready is %s: %+v", got, stored.Status)
		}
		if got := judged(func(ng *v1alpha1.NodeGate) { ng.Generation++ }); got != kstatus.InProgressStatus {
			t.Errorf("a gate that was changed is %s", got)
		}
		if got := judged(func(ng *v1alpha1.NodeGate) {
			meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady).Status = metav1.ConditionFalse
		}); got != kstatus.InProgressStatus {
			t.Errorf("a gate that is not Ready is %s", got)
		}
	})
}

func TestStatusThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var patches atomic.Int32
		var fail atomic.Bool
		fail.Store(true)
		var log logLines
		w := newWorld(t, testGate("gate"))
		defer w.start(log.logger(), countPatches(&patches, &fail))()
		pass(10 * time.Minute)
		if n := patches.Load(); n > 20 {
			t.Errorf("%d attempts within ten minutes", n)
		}
		if n := strings.Count(strings.Join(log.all(), "\n"), "cannot write status"); n != 1 {
			t.Errorf("it was logged %d times, want once", n)
		}
		fail.Store(false)
		pass(2 * time.Minute)
		if !meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady) {
			t.Error("the status was not written when it could be")
		}
	})
}

func TestStatusOfAGateThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log logLines
		w := newWorld(t, testGate("gate"))
		defer w.start(log.logger(), interceptor.Funcs{})()
		if err := w.c.client.Delete(t.Context(), testGate("gate")); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		for _, line := range log.all() {
			if strings.Contains(line, "cannot write") {
				t.Errorf("logged: %s", line)
			}
		}
	})
}

// What was in the status and is not any more goes, lists and counts too.
func TestStatusIsReplacedAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, testGate("gate"))
		w.add(1, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		pass(5 * time.Second)
		if len(w.stored("gate").Status.Waiting) != 1 {
			t.Fatalf("status: %+v", w.stored("gate").Status)
		}
		w.remove("n0000")
		w.c.NodeChanged("n0000", gate.Everything())
		pass(5 * time.Second)
		if status := w.stored("gate").Status; len(status.Waiting) != 0 || status.Nodes != (v1alpha1.NodeCounts{}) {
			t.Errorf("without any node the status is %+v", status)
		}
	})
}

func TestContendedNamesTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0000", ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "old", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`), Time: &metav1.Time{Time: time.Now().Add(-time.Hour)}},
			{Manager: "rival", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`), Time: &metav1.Time{Time: time.Now()}},
			{Manager: "kubelet", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`), Time: &metav1.Time{Time: time.Now()}},
		}}}
		c := New(Options{}, apiClient(t, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			node.DeepCopyInto(obj.(*corev1.Node))
			return nil
		}}), newTestMetrics())
		defer c.queue.ShutDown()
		if got := newReporter(c).otherWriter(t.Context(), []string{"n0000"}); !strings.Contains(got, `"rival"`) {
			t.Errorf("the other writer is told as: %s", got)
		}
	})
}

func TestSummaryIsOfConstantSize(t *testing.T) {
	tally, now := newTally(), time.Now()
	for i := range 1000 {
		tally.set(fmt.Sprintf("n%04d", i), []standing{{
			gate: "gate", selected: true, state: v1alpha1.StateClosed, since: now.Add(time.Duration((i*7919)%1000) * -time.Second),
			throttled: true, signal: "agent", denied: strings.Repeat("no ", 100), reading: gate.Reading{Reason: v1alpha1.ReadingPodNotReady, Subject: strings.Repeat("x", 1000)},
		}}, 1)
	}
	s := tally.summary("gate")
	if len(s.waiting) != waitingMax || len(s.waiting[0].Message) != 512 {
		t.Errorf("%d nodes wait, the first because of %d bytes", len(s.waiting), len(s.waiting[0].Message))
	}
	if !slices.IsSortedFunc(s.waiting, func(a, b v1alpha1.WaitingNode) int { return a.Since.Compare(b.Since.Time) }) {
		t.Errorf("not sorted by waiting time: %v", s.waiting)
	}
	if oldest := now.Add(-999 * time.Second).Truncate(time.Second); !s.waiting[0].Since.Time.Equal(oldest) {
		t.Errorf("the first has waited since %s, want %s", s.waiting[0].Since, oldest)
	}
	if got := s.throttled.String(); got != "n0000, n0001, n0002 and 997 more" {
		t.Errorf("throttled nodes are told as %q", got)
	}
	if n := strings.Count(s.lost, "signal agent: "); n != fewMax || len(s.lost) > fewMax*600 {
		t.Errorf("why %d nodes are to be closed is told in %d bytes", n, len(s.lost))
	}
}

// BenchmarkReport is a second of the worst kind: something changed on a node of
// every gate.
func BenchmarkReport(b *testing.B) {
	const gates, fleet = 200, 5000
	tally := newTally()
	all := make([]standing, gates)
	for i := range fleet {
		for g := range all {
			all[g] = standing{gate: fmt.Sprintf("gate-%03d", g), selected: true, state: v1alpha1.StateOpen, since: time.Unix(int64(i), 0)}
		}
		tally.set(fmt.Sprintf("n%04d", i), all, 1)
	}
	for i := 0; b.Loop(); i++ {
		for g := range all {
			all[g].since = time.Unix(int64(i), 1000)
		}
		tally.set("n0000", all, 1)
		for g := range all {
			tally.summary(all[g].gate)
		}
	}
}

// A feed that fails is the business of the gates that need it, and no other's.
func TestFeedsThatFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, testGate("other"), testGate("dra", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen = []v1alpha1.Signal{{Name: "gpus", SignalSource: v1alpha1.SignalSource{
				ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: "gpu.example.com"},
			}}}
		}))
		w.feeds = []cluster.FeedStatus{{Name: "gpu.example.com", Err: errors.New("no such kind")}}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		pass(10 * time.Second)
		c := meta.FindStatusCondition(w.stored("dra").Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != v1alpha1.ReasonFeedsNotSynced || !strings.Contains(c.Message, "no such kind") {
			t.Errorf("the gate that needs the feed: %+v", c)
		}
		if other := w.stored("other").Status.Conditions; !meta.IsStatusConditionTrue(other, v1alpha1.ConditionReady) {
			t.Errorf("another gate: %+v", other)
		}
	})
}
