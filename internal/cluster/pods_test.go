// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

func TestPods(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().put(testNode("a", "a1"))
		api.nodes().put(testNode("b", "b1"))
		api.pods(query).put(testPod("p", "p1", "a", false))
	}, func(t *testing.T, f *testFeed) {
		pods := f.api.pods(query)
		if facts := f.facts(t, "a"); len(facts.Pods) != 0 {
			t.Errorf("pods = %v before they are needed", facts.Pods)
		}
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		if _, gates := f.told.take(); gates == 0 {
			t.Error("nobody was told that the pods are known")
		}
		if _, known := f.facts(t, "b").Pods[query]; !known {
			t.Error("it is not known that b has no pod")
		}

		pods.put(testPod("p", "p1", "a", true))
		f.wantTold(t, "ready", "a")
		same := testPod("p", "p1", "a", true)
		slices.Reverse(same.Status.ContainerStatuses)
		same.Status.PodIP = "10.0.0.1"
		pods.put(same)
		f.wantTold(t, "nothing that matters")
		restarted := testPod("p", "p1", "a", true)
		restarted.Status.ContainerStatuses[0].ContainerID = "3"
		pods.put(restarted)
		f.wantTold(t, "another container", "a")
		deleted := restarted.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1700000230, 0)}
		deleted.DeletionGracePeriodSeconds = new(int64(30))
		pods.put(deleted)
		f.wantTold(t, "terminating", "a")
		if p := f.facts(t, "a").Pods[query][0]; !p.Terminating || p.TerminatingSince.Unix() != 1700000200 {
			t.Errorf("pod = %+v", p)
		}
		pods.put(testPod("q", "q1", "a", true))
		f.wantTold(t, "second pod", "a")
		pods.remove("p")
		f.wantTold(t, "deleted", "a")
		if got := f.facts(t, "a").Pods[query]; len(got) != 1 || got[0].Name != "ns/q" {
			t.Errorf("pods = %+v", got)
		}

		// The pod moves without word of its deletion, then vanishes the same way.
		pods.put(testPod("q", "q2", "b", true))
		f.wantTold(t, "moved", "a", "b")
		pods.hangUp()
		pods.set(syscall.ECONNREFUSED)
		pods.remove("q")
		pass(time.Second)
		if facts := f.facts(t, "b"); facts.Pods[query] != nil {
			t.Errorf("pods = %+v while they cannot be observed", facts.Pods)
		}
		if got := f.Unsynced(); got != nil {
			t.Errorf("unsynced = %v, want only that it is not live", got)
		}
		pods.forget()
		f.told.take()
		pods.set(nil)
		pass(time.Minute)
		if _, gates := f.told.take(); gates == 0 {
			t.Error("nobody was told that the pods are known again")
		}
		if got, known := f.facts(t, "b").Pods[query]; !known || len(got) != 0 {
			t.Errorf("pods = %+v, %v", got, known)
		}

		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		pods.put(testPod("r", "r1", "a", true))
		f.wantTold(t, "not needed any more")
		if facts := f.facts(t, "a"); len(facts.Pods) != 0 {
			t.Errorf("pods = %v", facts.Pods)
		}
	})
}

func TestPodFacts(t *testing.T) {
	s := newPodSet(func(string) {}, newNodeStore(unheard), "")
	o := testPod("p", "p1", "a", true)
	o.OwnerReferences = []metav1.OwnerReference{{UID: "no"}, {UID: "ds", Controller: new(true)}}
	o.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	o.Status.Phase = corev1.PodFailed
	got := s.convert(o)
	want := gate.Pod{
		UID: "p1", Name: "ns/p", Owner: "ds", Created: time.Unix(1700000000, 0).UTC(), Ready: true,
		ReadySince: time.Unix(1700000100, 0).UTC(), Finished: true, Mirror: true,
		Incarnation: gate.NewIncarnation("p1", []string{"1", "2"}),
	}
	if got.node != "a" || got.Unpack() != want {
		t.Errorf("pod = %+v on %s, want %+v on a", got.Unpack(), got.node, want)
	}
}
