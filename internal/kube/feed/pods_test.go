// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

func TestPods(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
		api.pods(query).Put(kubetest.Pod("p", "p1", "a", false))
	}, func(t *testing.T, f *testFeed) {
		pods := f.api.pods(query)
		if facts := f.facts(t, "a"); len(facts.Pods) != 0 {
			t.Errorf("pods = %v before they are needed", facts.Pods)
		}
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		if _, gates := f.handler.take(); gates == 0 {
			t.Error("it was not announced that the pods are known")
		}
		if _, known := f.facts(t, "b").Pods[query]; !known {
			t.Error("b, which has no pod, has no entry for the query")
		}

		pods.Put(kubetest.Pod("p", "p1", "a", true))
		f.wantChanged(t, "ready", "a")
		same := kubetest.Pod("p", "p1", "a", true)
		slices.Reverse(same.Status.ContainerStatuses)
		same.Status.PodIP = "10.0.0.1"
		pods.Put(same)
		f.wantChanged(t, "irrelevant change")
		restarted := kubetest.Pod("p", "p1", "a", true)
		restarted.Status.ContainerStatuses[0].ContainerID = "3"
		pods.Put(restarted)
		f.wantChanged(t, "another container", "a")
		deleted := restarted.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1700000230, 0)}
		deleted.DeletionGracePeriodSeconds = new(int64(30))
		pods.Put(deleted)
		f.wantChanged(t, "terminating", "a")
		if p := f.facts(t, "a").Pods[query][0]; !p.Terminating || p.TerminatingSince.Unix() != 1700000200 {
			t.Errorf("pod = %+v", p)
		}
		pods.Put(kubetest.Pod("q", "q1", "a", true))
		f.wantChanged(t, "second pod", "a")
		pods.remove("p")
		f.wantChanged(t, "deleted", "a")
		if got := f.facts(t, "a").Pods[query]; len(got) != 1 || got[0].Name != "ns/q" {
			t.Errorf("pods = %+v", got)
		}

		// The pod moves to another node, and its deletion is missed. Then it is deleted,
		// and that is missed, too.
		pods.Put(kubetest.Pod("q", "q2", "b", true))
		f.wantChanged(t, "moved", "a", "b")
		pods.set(syscall.ECONNREFUSED)
		pods.hangUp()
		pods.remove("q")
		kubetest.Pass(time.Second)
		if facts := f.facts(t, "b"); facts.Pods[query] != nil {
			t.Errorf("pods = %+v while they cannot be observed", facts.Pods)
		}
		if got := f.Unsynced(); got != nil {
			t.Errorf("unsynced = %v although the feed is only not live", got)
		}
		pods.restart()
		f.handler.take()
		pods.set(nil)
		kubetest.Pass(time.Minute)
		if _, gates := f.handler.take(); gates == 0 {
			t.Error("it was not announced that the pods are known again")
		}
		if got, known := f.facts(t, "b").Pods[query]; !known || len(got) != 0 {
			t.Errorf("pods = %+v, %v", got, known)
		}

		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		pods.Put(kubetest.Pod("r", "r1", "a", true))
		f.wantChanged(t, "no longer needed")
		if facts := f.facts(t, "a"); len(facts.Pods) != 0 {
			t.Errorf("pods = %v", facts.Pods)
		}
	})
}

func TestPodFacts(t *testing.T) {
	s := NewPods(func(string) {}, nodestore.New(nodestore.Options{}), gate.PodQuery{})
	o := kubetest.Pod("p", "p1", "a", true)
	o.OwnerReferences = []metav1.OwnerReference{{UID: "no"}, {UID: "ds", Controller: new(true)}}
	o.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	o.Status.Phase = corev1.PodFailed
	got := s.Convert(o)
	want := gate.Pod{
		UID: "p1", Name: "ns/p", Owner: "ds", Created: time.Unix(1700000000, 0).UTC(), Ready: true,
		ReadySince: time.Unix(1700000100, 0).UTC(), Finished: true, Mirror: true, Unlabelled: true,
		Incarnation: gate.NewIncarnation("p1", []string{"1", "2"}),
	}
	if got.node != "a" || got.Unpack() != want {
		t.Errorf("pod = %+v on %s, want %+v on a", got.Unpack(), got.node, want)
	}
	for name, test := range map[string]struct {
		labels     map[string]string
		unlabelled bool
	}{
		"created by the DaemonSet controller": {map[string]string{"controller-revision-hash": "5d9c", "pod-template-generation": "2"}, false},
		"of a StatefulSet":                    {map[string]string{"controller-revision-hash": "5d9c"}, true},
		"without a revision":                  {map[string]string{"pod-template-generation": "2"}, true},
		"empty":                               {map[string]string{"controller-revision-hash": "", "pod-template-generation": ""}, true},
	} {
		if o.Labels = test.labels; s.Convert(o).Unpack().Unlabelled != test.unlabelled {
			t.Errorf("%s: %t", name, !test.unlabelled)
		}
	}
}

// There is one copy of each node's name, whether the node or its pod is read first.
func TestNamesAreKeptOnce(t *testing.T) {
	pod := func(f *testFeed, node string) *byte {
		set := (*f.podFeeds.Load())[query].pods
		return unsafe.StringData(set.nodes.NameOf(node))
	}
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		synctest.Wait()
		early := f.nodes.NameOf("b" + string([]byte{'1'}))
		f.api.nodes().Put(kubetest.Node("b1", "b1"))
		synctest.Wait()
		if got := pod(f, "b1"); got != unsafe.StringData(f.facts(t, "b1").Node.Name) || got != unsafe.StringData(early) {
			t.Error("a node's name is stored twice")
		}
	})
}

// An annotation that no gate refers to is not stored, and its changes are not announced.
func TestMarksOnlyWhereAsked(t *testing.T) {
	markable := gate.PodQuery{Namespace: query.Namespace, Selector: query.Selector, Annotation: readyKey}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.pods(query).Put(kubetest.Pod("p", "p1", "a", false))
	}, func(t *testing.T, f *testFeed) {
		annotated := func(key string) *corev1.Pod {
			p := kubetest.Pod("p", "p1", "a", false)
			p.Annotations = map[string]string{key: "true"}
			return p
		}
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query, markable}})
		f.handler.take()
		f.api.pods(query).Put(annotated("other"))
		f.wantChanged(t, "an annotation of no query")
		f.api.pods(query).Put(annotated(readyKey))
		f.wantChanged(t, "the annotation of one of two queries", "a")
		facts := f.facts(t, "a")
		if facts.Pods[markable][0].MarkedSince.IsZero() || !facts.Pods[query][0].MarkedSince.IsZero() {
			t.Errorf("pods = %+v", facts.Pods)
		}
	})
}
