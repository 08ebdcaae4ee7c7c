// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/testcluster/await"
)

// A condition keeps its transition time until its status changes. After a failed report,
// whether the status has changed is unknown.
func TestTransitionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(nil, "n", "boot")
		report := func(err error) time.Time {
			c := n.conditions(Conditions{corev1.NodeReady: corev1.ConditionTrue})
			n.confirm(c, err)
			_ = await.Pause(t.Context(), time.Minute) // the context does not end
			return c[0].LastTransitionTime.Time
		}
		first := report(nil)
		if again := report(errors.New("no response")); !again.Equal(first) {
			t.Errorf("the transition times are %s and %s, want the same", first, again)
		}
		if last := report(nil); !last.After(first) {
			t.Errorf("after a failed report, the transition time is %s, want a later one than %s", last, first)
		}
	})
}

// New containers have a new start time. Readiness has its own transition time.
func TestPodStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		report := func(id string, ready bool) (transition, started metav1.Time) {
			pod.Status = podStatus(pod, id, ready)
			_ = await.Pause(t.Context(), time.Minute) // the context does not end
			return readyCondition(pod).LastTransitionTime, pod.Status.ContainerStatuses[0].State.Running.StartedAt
		}
		transition, started := report("1", true)
		again, same := report("1", true)
		if !again.Equal(&transition) || !same.Equal(&started) {
			t.Errorf("an unchanged status has times %s and %s, want %s and %s", again, same, transition, started)
		}
		if other, later := report("2", true); !other.Equal(&transition) || !later.After(started.Time) {
			t.Errorf("new containers have times %s and %s, want %s and a later one than %s", other, later, transition, started)
		}
		if other, _ := report("2", false); !other.After(transition.Time) {
			t.Errorf("a pod that is no longer ready has transition time %s", other)
		}
	})
}
