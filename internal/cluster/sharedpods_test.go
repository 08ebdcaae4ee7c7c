// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodegate/nodegate/internal/gate"
)

// everyPod is what a shared watch asks the API server for.
var everyPod = gate.PodQuery{Namespace: "ns"}

// queries returns the queries of n DaemonSets: app=d0 and so on.
func queries(n int) []gate.PodQuery {
	all := make([]gate.PodQuery, n)
	for i := range all {
		all[i] = gate.PodQuery{Namespace: "ns", Selector: fmt.Sprintf("app=d%d", i)}
	}
	return all
}

func labelled(name, node, app string) *corev1.Pod {
	p := testPod(name, "uid-of-it", node, true)
	p.Labels = map[string]string{"app": app, "tier": "daemon"}
	return p
}

// watches returns what is being watched of the namespace's pods.
func (f *testFeed) watches() (watched []string) {
	f.api.set(func() {
		for name, k := range f.api.kinds {
			open := slices.ContainsFunc(k.watchers, func(w *watch.RaceFreeFakeWatcher) bool { return !w.IsStopped() })
			if strings.HasPrefix(name, "pods/") && open {
				watched = append(watched, name)
			}
		}
	})
	slices.Sort(watched)
	return watched
}

// Three hundred DaemonSets are one watch.
func TestManyQueriesShareAWatch(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().put(testNode("a", "a1"))
		api.pods(everyPod).put(labelled("p7", "a", "d7"))
		api.pods(everyPod).put(labelled("other", "a", "other"))
	}, func(t *testing.T, f *testFeed) {
		asked := queries(300)
		f.SetNeeds(gate.Needs{Pods: asked})
		synctest.Wait()
		if got := f.watches(); !slices.Equal(got, []string{"pods/ns/"}) {
			t.Fatalf("%d watches: %v", len(got), got)
		}
		if got := f.Unsynced(); got != nil {
			t.Errorf("unsynced %v", got)
		}
		facts := f.facts(t, "a")
		if len(facts.Pods) != 300 || len(facts.Pods[asked[7]]) != 1 || len(facts.Pods[asked[8]]) != 0 {
			t.Errorf("%d queries, pods of d7: %+v, of d8: %+v", len(facts.Pods), facts.Pods[asked[7]], facts.Pods[asked[8]])
		}
		for _, s := range f.StatusOf(gate.Needs{Pods: asked}) {
			if s.Name == "pods in ns" && !s.Live || strings.HasPrefix(s.Name, "pods in ns (") {
				t.Errorf("status %+v", s)
			}
		}

		// A few more have their own watches, and nothing is read anew.
		more := queries(302)
		f.told.take()
		f.SetNeeds(gate.Needs{Pods: more})
		synctest.Wait()
		if got := f.watches(); !slices.Equal(got, []string{"pods/ns/", "pods/ns/app=d300", "pods/ns/app=d301"}) {
			t.Errorf("watches: %v", got)
		}
		if k := f.api.pods(everyPod); k.lists != 1 {
			t.Errorf("all pods were read %d times", k.lists)
		}
	})
}

// The most there ever are in a namespace, and the way back.
func TestWatchesOfANamespaceAreBounded(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().put(testNode("a", "a1")) }, func(t *testing.T, f *testFeed) {
		other := gate.PodQuery{Namespace: "other", Selector: "app=x"}
		for _, step := range []struct {
			queries, own int
			shared       bool
		}{
			{podWatchesMax, podWatchesMax, false},
			{podWatchesMax + 1, 0, true},
			{2*podWatchesMax + 1, podWatchesMax, true},
			{2*podWatchesMax + 2, 0, true},
			{podWatchesMax/2 + 1, 0, true},
			{podWatchesMax / 2, podWatchesMax / 2, false},
			{0, 0, false},
		} {
			f.SetNeeds(gate.Needs{Pods: append(queries(step.queries), other)})
			synctest.Wait()
			got := f.watches()
			want := step.own + 1 // that of the other namespace
			if step.shared {
				want++
			}
			if len(got) != want || slices.Contains(got, "pods/ns/") != step.shared || !slices.Contains(got, "pods/other/app=x") {
				t.Errorf("%d queries: %d watches, want %d: %v", step.queries, len(got), want, got)
			}
			if facts := f.facts(t, "a"); len(facts.Pods) != step.queries+1 {
				t.Errorf("%d queries: %d are observed", step.queries, len(facts.Pods)-1)
			}
		}
	})
}

// What a watch of its own tells of a query, a shared one does, too.
func TestSharedPods(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().put(testNode("a", "a1"))
		api.nodes().put(testNode("b", "b1"))
	}, func(t *testing.T, f *testFeed) {
		daemons := gate.PodQuery{Namespace: "ns", Selector: "tier in (daemon,other)"} // no particular label
		marked := gate.PodQuery{Namespace: "ns", Selector: "app=d1", Annotation: "ready"}
		f.SetNeeds(gate.Needs{Pods: append(queries(40), daemons, marked)})
		synctest.Wait()
		f.told.take()
		of := func(app string) gate.PodQuery { return gate.PodQuery{Namespace: "ns", Selector: "app=" + app} }
		count := func(node string, q gate.PodQuery) int { return len(f.facts(t, node).Pods[q]) }
		pods := f.api.pods(everyPod)

		pods.put(labelled("p", "a", "d1"))
		f.wantTold(t, "new", "a")
		if count("a", of("d1")) != 1 || count("a", daemons) != 1 || count("a", marked) != 1 || count("a", of("d2")) != 0 || count("b", daemons) != 0 {
			t.Errorf("pods %+v", f.facts(t, "a").Pods)
		}
		annotated := labelled("p", "a", "d1")
		annotated.Annotations = map[string]string{"ready": "true"}
		pods.put(annotated)
		f.wantTold(t, "marked", "a")
		if got := f.facts(t, "a").Pods; got[marked][0].MarkedSince.IsZero() || !got[of("d1")][0].MarkedSince.IsZero() {
			t.Errorf("marks are not each query's own: %+v", got)
		}
		pods.put(labelled("q", "a", "other"))
		f.wantTold(t, "one that only the tier selects", "a")
		pods.put(labelled("p", "a", "d2"))
		f.wantTold(t, "labelled anew", "a")
		if count("a", of("d1")) != 0 || count("a", of("d2")) != 1 || count("a", daemons) != 2 {
			t.Errorf("pods %+v", f.facts(t, "a").Pods)
		}
		pods.put(labelled("p", "b", "d2"))
		f.wantTold(t, "moved", "a", "b")
		pods.remove("q")
		f.wantTold(t, "deleted", "a")
		nobodys := labelled("x", "a", "nobodys")
		nobodys.Labels = nil
		pods.put(nobodys)
		f.wantTold(t, "nobody's")

		// While it cannot be watched, nothing is known; then what is there.
		pods.hangUp()
		pods.api.set(func() { pods.err = syscall.ECONNREFUSED })
		pods.remove("p")
		pass(time.Second)
		if got := f.facts(t, "b").Pods; len(got) != 0 {
			t.Errorf("pods = %+v while they cannot be observed", got)
		}
		pods.forget()
		pods.api.set(func() { pods.err = nil })
		pass(time.Minute)
		if got := f.facts(t, "b").Pods; len(got) != 42 || count("b", of("d2")) != 0 {
			t.Errorf("pods = %+v", got)
		}
	})
}

// A pod is looked up by a label that a selector asks for, and every kind of
// selector selects what it would on the API server.
func TestDealing(t *testing.T) {
	for _, text := range []string{
		"app=a", "app==a", "app in (a)", "app in (a,b)", "app", "!app", "app!=a", "app notin (a)", "tier=x,app=a", "app,tier=x", "none,!none", "",
	} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		pods := newPodSet(func(string) {}, newNodeStore(unheard), "")
		s := newSharedPods([]sharedSet{{selector, pods}})
		for _, set := range []labels.Set{nil, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}, {"tier": "x"}} {
			got := s.convert(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: set}})
			_, belongs := got.in(pods)
			if dealt := len(got.to) == 1 && belongs; dealt != selector.Matches(set) || len(got.to) > 1 {
				t.Errorf("%q of %v: dealt %+v", text, set, got.to)
			}
		}
	}
}

func BenchmarkDealing(b *testing.B) {
	var sets []sharedSet
	for _, q := range queries(300) {
		selector, err := labels.Parse(q.Selector)
		if err != nil {
			b.Fatal(err)
		}
		sets = append(sets, sharedSet{selector, newPodSet(func(string) {}, newNodeStore(unheard), "")})
	}
	s, pod := newSharedPods(sets), labelled("p", "a", "d7")
	b.ReportAllocs()
	for b.Loop() {
		s.put(s.convert(pod))
	}
}
