// SPDX-License-Identifier: Apache-2.0

package feed

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
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// everyPod is the query of a shared watch.
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
	p := kubetest.Pod(name, "uid-of-it", node, true)
	p.Labels = map[string]string{"app": app, "tier": "daemon"}
	return p
}

// watches returns the open watches of the kinds with a prefix.
func (f *testFeed) watches(prefix string) (watched []string) {
	f.api.set(func() {
		for name, k := range f.api.kinds {
			open := slices.ContainsFunc(k.watchers, func(w *watch.RaceFreeFakeWatcher) bool { return !w.IsStopped() })
			if strings.HasPrefix(name, prefix) && open {
				watched = append(watched, name)
			}
		}
	})
	slices.Sort(watched)
	return watched
}

// Three hundred DaemonSets share one watch.
func TestManyQueriesShareAWatch(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.pods(everyPod).Put(labelled("p7", "a", "d7"))
		api.pods(everyPod).Put(labelled("other", "a", "other"))
	}, func(t *testing.T, f *testFeed) {
		asked := queries(300)
		f.SetNeeds(gate.Needs{Pods: asked})
		synctest.Wait()
		if got := f.watches("pods/"); !slices.Equal(got, []string{"pods/ns/"}) {
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

		// Two more queries get watches of their own, and nothing is read again.
		more := queries(302)
		f.handler.take()
		f.SetNeeds(gate.Needs{Pods: more})
		synctest.Wait()
		if got := f.watches("pods/"); !slices.Equal(got, []string{"pods/ns/", "pods/ns/app=d300", "pods/ns/app=d301"}) {
			t.Errorf("watches: %v", got)
		}
		if k := f.api.pods(everyPod); k.lists != 1 {
			t.Errorf("all pods were listed %d times", k.lists)
		}
	})
}

// sharingSteps are successive numbers of what is needed in a group, and the watches for it:
// how many serve one of them, and whether one is shared.
var sharingSteps = []struct {
	needed, own int
	shared      bool
}{
	{reflector.WatchesMax, reflector.WatchesMax, false},
	{reflector.WatchesMax + 1, 0, true},
	{2*reflector.WatchesMax + 1, reflector.WatchesMax, true},
	{2*reflector.WatchesMax + 2, 0, true},
	{reflector.WatchesMax/2 + 1, 0, true},
	{reflector.WatchesMax / 2, reflector.WatchesMax / 2, false},
	{0, 0, false},
}

// The number of watches in a namespace is bounded, while queries are added and removed.
func TestWatchesPerNamespaceAreBounded(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		other := gate.PodQuery{Namespace: "other", Selector: "app=x"}
		for _, step := range sharingSteps {
			f.SetNeeds(gate.Needs{Pods: append(queries(step.needed), other)})
			synctest.Wait()
			got := f.watches("pods/")
			want := step.own + 1 // the watch of the other namespace
			if step.shared {
				want++
			}
			if len(got) != want || slices.Contains(got, "pods/ns/") != step.shared || !slices.Contains(got, "pods/other/app=x") {
				t.Errorf("%d queries: %d watches, want %d: %v", step.needed, len(got), want, got)
			}
			if facts := f.facts(t, "a"); len(facts.Pods) != step.needed+1 {
				t.Errorf("%d queries: %d observed", step.needed, len(facts.Pods)-1)
			}
		}
	})
}

// A shared watch provides the same facts as a query's own watch.
func TestSharedPods(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
	}, func(t *testing.T, f *testFeed) {
		daemons := gate.PodQuery{Namespace: "ns", Selector: "tier in (daemon,other)"} // requires no particular label value
		marked := gate.PodQuery{Namespace: "ns", Selector: "app=d1", Annotation: "ready"}
		f.SetNeeds(gate.Needs{Pods: append(queries(40), daemons, marked)})
		synctest.Wait()
		f.handler.take()
		of := func(app string) gate.PodQuery { return gate.PodQuery{Namespace: "ns", Selector: "app=" + app} }
		count := func(node string, q gate.PodQuery) int { return len(f.facts(t, node).Pods[q]) }
		pods := f.api.pods(everyPod)

		pods.Put(labelled("p", "a", "d1"))
		f.wantChanged(t, "new", "a")
		if count("a", of("d1")) != 1 || count("a", daemons) != 1 || count("a", marked) != 1 || count("a", of("d2")) != 0 || count("b", daemons) != 0 {
			t.Errorf("pods %+v", f.facts(t, "a").Pods)
		}
		annotated := labelled("p", "a", "d1")
		annotated.Annotations = map[string]string{"ready": "true"}
		pods.Put(annotated)
		f.wantChanged(t, "marked", "a")
		if got := f.facts(t, "a").Pods; got[marked][0].MarkedSince.IsZero() || !got[of("d1")][0].MarkedSince.IsZero() {
			t.Errorf("marks of one query appear in another: %+v", got)
		}
		pods.Put(labelled("q", "a", "other"))
		f.wantChanged(t, "pod that only the tier selects", "a")
		pods.Put(labelled("p", "a", "d2"))
		f.wantChanged(t, "other labels", "a")
		if count("a", of("d1")) != 0 || count("a", of("d2")) != 1 || count("a", daemons) != 2 {
			t.Errorf("pods %+v", f.facts(t, "a").Pods)
		}
		pods.Put(labelled("p", "b", "d2"))
		f.wantChanged(t, "moved", "a", "b")
		pods.remove("q")
		f.wantChanged(t, "deleted", "a")
		unlabelled := labelled("x", "a", "none")
		unlabelled.Labels = nil
		pods.Put(unlabelled)
		f.wantChanged(t, "pod that no query selects")

		// While pods cannot be watched they are unknown; afterwards the current ones are
		// known.
		pods.api.set(func() { pods.err = syscall.ECONNREFUSED })
		pods.hangUp()
		pods.remove("p")
		kubetest.Pass(time.Second)
		if got := f.facts(t, "b").Pods; len(got) != 0 {
			t.Errorf("pods = %+v while they cannot be observed", got)
		}
		pods.restart()
		pods.api.set(func() { pods.err = nil })
		kubetest.Pass(time.Minute)
		if got := f.facts(t, "b").Pods; len(got) != 42 || count("b", of("d2")) != 0 {
			t.Errorf("pods = %+v", got)
		}
	})
}

// Pods are matched by a label that the selector requires. All kinds of selectors select
// the same pods as on the API server.
func TestSharedPodsMatchSelectors(t *testing.T) {
	for _, text := range []string{
		"app=a", "app==a", "app in (a)", "app in (a,b)", "app", "!app", "app!=a", "app notin (a)", "tier=x,app=a", "app,tier=x", "none,!none", "",
	} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		pods := NewPods(func(string) {}, nodestore.New(nodestore.Options{}), gate.PodQuery{})
		s := NewSharedPods([]SharedSet{{selector, pods}})
		for _, set := range []labels.Set{nil, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}, {"tier": "x"}} {
			got := s.Convert(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: set}})
			_, belongs := got.in(pods)
			if matched := len(got.matches) == 1 && belongs; matched != selector.Matches(set) || len(got.matches) > 1 {
				t.Errorf("%q with labels %v: matches %+v", text, set, got.matches)
			}
		}
	}
}

func BenchmarkSharedPods(b *testing.B) {
	var sets []SharedSet
	for _, q := range queries(300) {
		selector, err := labels.Parse(q.Selector)
		if err != nil {
			b.Fatal(err)
		}
		sets = append(sets, SharedSet{selector, NewPods(func(string) {}, nodestore.New(nodestore.Options{}), gate.PodQuery{})})
	}
	s, pod := NewSharedPods(sets), labelled("p", "a", "d7")
	b.ReportAllocs()
	for b.Loop() {
		s.Put(s.Convert(pod))
	}
}
