// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// The time at which a node became unreachable is known only if that was observed.
func TestSilentSince(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	clock := clocktesting.NewFakePassiveClock(begin)
	s := newWatched(Options{Clock: clock})
	since := begin
	node := func(ready corev1.ConditionStatus) *packed.Node {
		n := kubetest.Node("n", "uid")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)}}
		return s.Pack(n)
	}
	put := func(ready corev1.ConditionStatus) {
		n := node(ready)
		s.Put(n)
	}
	list := func(ready corev1.ConditionStatus) {
		n := node(ready)
		s.ReplaceAt([]*packed.Node{n}, "")
	}
	drop := func(ready corev1.ConditionStatus) {
		n := node(ready)
		s.Drop(n)
	}
	const reporting, silent = corev1.ConditionTrue, corev1.ConditionUnknown
	never, now := time.Time{}, func() time.Time { return clock.Now() }
	before := func() time.Time { return clock.Now().Add(-time.Minute) }
	for _, step := range []struct {
		what   string
		change func(corev1.ConditionStatus)
		ready  corev1.ConditionStatus
		want   func() time.Time
	}{
		{"unreachable when first listed", list, silent, func() time.Time { return never }},
		{"still", put, silent, func() time.Time { return never }},
		{"reporting", put, corev1.ConditionFalse, func() time.Time { return never }},
		{"unreachable", put, silent, now},
		{"still unreachable", put, silent, before},
		{"reporting again", put, reporting, func() time.Time { return never }},
		{"unreachable in a list", list, silent, now},
		{"still in the next list", list, silent, before},
		{"still, but it has returned in between", func(corev1.ConditionStatus) { since = clock.Now(); list(silent) }, silent, now},
		{"reporting in a list", list, reporting, func() time.Time { return never }},
		{"unreachable once more", put, silent, now},
		{"deleted", drop, silent, func() time.Time { return never }},
		{"re-created, unreachable", put, silent, func() time.Time { return never }},
	} {
		clock.SetTime(clock.Now().Add(time.Minute))
		step.change(step.ready)
		facts, _ := s.Get("n")
		if want := step.want(); !facts.SilentSince.Equal(want) {
			t.Errorf("%s: unreachable since %s, want %s", step.what, facts.SilentSince, want)
		}
	}
	if len(s.silent) > 0 {
		t.Errorf("entries remain: %v", s.silent)
	}
}
