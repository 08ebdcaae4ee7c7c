// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/bench/fixture"
)

func TestOnlyChangesAreReported(t *testing.T) {
	now := time.Unix(1, 0)
	open, tainted := fixture.Node("n", now), fixture.Node("n", now)
	tainted.Spec.Taints = []corev1.Taint{fixture.Taint}
	other := fixture.Node("n", now)
	other.Spec.Taints = []corev1.Taint{{Key: fixture.Taint.Key, Effect: corev1.TaintEffectNoExecute}}
	pod := func(node string, ready bool) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.Name, p.Status = "p", fixture.PodStatus(p, ready, now)
		return p
	}
	csi := func(registered bool) *storagev1.CSINode {
		return fixture.CSINode(fixture.Node("n", now), fixture.CSIDriver, registered)
	}
	var out bytes.Buffer
	s := &stream{taint: fixture.Taint, out: &out, states: map[string]State{}}
	for i, step := range []struct {
		event  watch.EventType
		object runtime.Object
	}{
		{watch.Added, tainted}, {watch.Modified, tainted}, {watch.Modified, open}, {watch.Modified, other},
		{watch.Deleted, open}, {watch.Added, open},
		{watch.Added, pod("", false)}, {watch.Modified, pod("n", false)}, {watch.Modified, pod("n", true)},
		{watch.Added, csi(false)}, {watch.Modified, csi(true)},
	} {
		if err := s.report(watch.Event{Type: step.event, Object: step.object}, time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	var got []observation
	for line := range strings.Lines(out.String()) {
		o, err := parse(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, o)
	}
	want := []observation{
		{Tainted, "n", time.Unix(0, 0)}, {Open, "n", time.Unix(2, 0)}, {Gone, "n", time.Unix(4, 0)}, {Open, "n", time.Unix(5, 0)},
		{Unready, "p", time.Unix(6, 0)}, {Unready | Bound, "p", time.Unix(7, 0)}, {Ready | Bound, "p", time.Unix(8, 0)},
		{Unregistered, "csinode/n", time.Unix(9, 0)}, {Registered, "csinode/n", time.Unix(10, 0)},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(observation{})); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	status := apierrors.NewResourceExpired("too old").Status()
	if err := s.report(watch.Event{Type: watch.Error, Object: &status}, now); err == nil {
		t.Error("an error of the API server is ignored")
	}
	for _, line := range []string{"", "1 n", "x n 1", "1 n x"} {
		if o, err := parse(line); err == nil {
			t.Errorf("%q is parsed as %v", line, o)
		}
	}
}

// The current states and the times since the last reset are independent.
func TestObserver(t *testing.T) {
	o := newObserver()
	o.add(observation{Tainted, "n", time.Unix(1, 0)})
	o.add(observation{Open, "n", time.Unix(2, 0)})
	o.add(observation{Tainted, "n", time.Unix(3, 0)})
	if at := o.Seen(Tainted)["n"]; at != time.Unix(1, 0) {
		t.Errorf("tainted at %v", at)
	}
	if len(o.Now(Open)) != 0 || !o.Now(Tainted)["n"] {
		t.Errorf("now %v", o.now)
	}
	o.add(observation{interrupted, "nodes", time.Unix(4, 0)})
	o.add(observation{interrupted, "nodes", time.Unix(5, 0)})
	if o.Interruptions() != 2 || !o.Now(Tainted)["n"] {
		t.Errorf("%d interruptions, now %v", o.Interruptions(), o.now)
	}
	o.Reset()
	if len(o.Seen(Tainted)) != 0 || !o.Now(Tainted)["n"] {
		t.Errorf("after a reset: since then %v, now %v", o.Seen(Tainted), o.now)
	}
	if err := o.Await(t.Context(), Tainted, 1); err != nil {
		t.Error(err)
	}
	// A state that has not been entered again since the reset is not new.
	o.add(observation{Unready, "p", time.Unix(6, 0)})
	o.Reset()
	o.add(observation{Unready | Bound, "p", time.Unix(7, 0)})
	if len(o.Seen(Unready)) != 0 || o.Seen(Bound)["p"] != time.Unix(7, 0) {
		t.Errorf("unready %v, bound %v", o.Seen(Unready), o.Seen(Bound))
	}
}

// A latency is from one object of a node to another; a missing event is an error.
func TestLatencies(t *testing.T) {
	o := newObserver()
	o.add(observation{Registered, CSINode("n"), time.Unix(1, 0)})
	o.add(observation{Open, "n", time.Unix(1, 5e6)})
	registered, open := Event{Registered, CSINode}, Event{Open, Node}
	if got, err := o.Latencies(t.Context(), []string{"n"}, registered, open); err != nil || !cmp.Equal(got, []float64{5}) {
		t.Errorf("got %v ms (%v), want 5", got, err)
	}
	if got, err := o.Latencies(t.Context(), []string{"n"}, Event{Ready, fixture.PodName}, open); err == nil {
		t.Errorf("got %v ms from a pod that was never ready", got)
	}
}
