// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// numbered returns n names with the prefix.
func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return all
}

// namespaces returns n names.
func namespaces(n int) []string { return numbered("ns", n) }

// in returns a DaemonSet in a namespace.
func in(namespace, name string) *appsv1.DaemonSet {
	o := kubetest.DaemonSet(name)
	o.Namespace = namespace
	return o
}

// items returns the names of the known DaemonSets.
func (f *testFeed) items() (all []string) {
	for _, ds := range f.DaemonSets().Items {
		all = append(all, ds.String())
	}
	return all
}

// A gate may name thousands of namespaces. One watch serves all of them, and has the same
// facts as one in each: DaemonSets in other namespaces do not count.
func TestManyNamespacesShareAWatch(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		for _, ns := range []string{"ns-0007", "ns-4095", "foreign"} {
			api.daemonSets("").Put(in(ns, "agent-of-"+ns))
		}
	}, func(t *testing.T, f *testFeed) {
		needed := gate.Needs{DaemonSetNamespaces: namespaces(4096)}
		f.SetNeeds(needed)
		synctest.Wait()
		if got := f.watches("daemonsets/"); !slices.Equal(got, []string{"daemonsets/"}) {
			t.Fatalf("%d watches: %.200v", len(got), got)
		}
		if got := f.Unsynced(); got != nil {
			t.Errorf("unsynced %v", got)
		}
		observed := f.DaemonSets().Observed
		if want := []string{"ns-0007/agent-of-ns-0007", "ns-4095/agent-of-ns-4095"}; !slices.Equal(f.items(), want) || len(observed) != 4096 || observed["foreign"] {
			t.Errorf("DaemonSets %v, %d namespaces observed", f.items(), len(observed))
		}

		f.handler.take()
		all := f.api.daemonSets("")
		all.Put(in("foreign", "foreign"))
		all.Put(in("ns-0008", "another"))
		all.remove("agent-of-ns-0007")
		if _, n := f.handler.take(); n != 2 {
			t.Errorf("announced %d times", n)
		}
		if want := []string{"ns-0008/another", "ns-4095/agent-of-ns-4095"}; !slices.Equal(f.items(), want) {
			t.Errorf("DaemonSets %v", f.items())
		}

		// Without the permission to list all of them, none is known.
		all.set(errForbidden)
		all.hangUp()
		kubetest.Pass(time.Second)
		if got := f.DaemonSets().Observed; len(got) != 0 {
			t.Errorf("%d namespaces observed without permission", len(got))
		}
		for _, s := range f.StatusOf(needed) {
			if s.Name == sharedDaemonSetsName && (s.Live || !errors.Is(s.Err, errForbidden)) {
				t.Errorf("status %+v", s)
			}
		}
		all.set(nil)
		kubetest.Pass(time.Minute)
		if got := f.DaemonSets().Observed; len(got) != 4096 {
			t.Errorf("%d namespaces observed afterwards", len(got))
		}
	})
}

// The number of watches of DaemonSets is bounded, while namespaces are added and removed. No
// namespace counts as observed by a watch that has ended.
func TestWatchesOfDaemonSetsAreBounded(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		for _, ns := range namespaces(2*reflector.WatchesMax + 2) {
			api.daemonSets(ns).Put(in(ns, "agent"))
			api.daemonSets("").Put(in(ns, "shared-"+ns))
		}
	}, func(t *testing.T, f *testFeed) {
		for _, step := range sharingSteps {
			f.SetNeeds(gate.Needs{DaemonSetNamespaces: namespaces(step.needed)})
			synctest.Wait()
			got, want := f.watches("daemonsets/"), step.own
			if step.shared {
				want++
			}
			if len(got) != want || slices.Contains(got, "daemonsets/") != step.shared {
				t.Errorf("%d namespaces: %d watches, want %d: %v", step.needed, len(got), want, got)
			}
			if sets := f.DaemonSets(); len(sets.Observed) != step.needed || len(sets.Items) != step.needed {
				t.Errorf("%d namespaces: %d observed, with %d DaemonSets", step.needed, len(sets.Observed), len(sets.Items))
			}
		}

		// A shared watch that cannot start leaves nothing of those that it replaces.
		f.SetNeeds(gate.Needs{DaemonSetNamespaces: namespaces(reflector.WatchesMax)})
		synctest.Wait()
		f.api.daemonSets("").set(errForbidden)
		f.SetNeeds(gate.Needs{DaemonSetNamespaces: namespaces(reflector.WatchesMax + 1)})
		synctest.Wait()
		if sets := f.DaemonSets(); len(sets.Observed) != 0 || len(sets.Items) != 0 {
			t.Errorf("%d observed, with %d DaemonSets, by watches that have ended", len(sets.Observed), len(sets.Items))
		}
	})
}

// Pods of thousands of namespaces share a watch, too. A pod in another namespace with the same
// labels does not count.
func TestPodsOfManyNamespacesShareAWatch(t *testing.T) {
	pod := func(namespace, name string) *corev1.Pod {
		p := labelled(name, "a", "agent")
		p.Namespace = namespace
		return p
	}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		all := api.pods(gate.PodQuery{})
		all.Put(pod("ns-0007", "p7"))
		all.Put(pod("foreign", "foreign"))
	}, func(t *testing.T, f *testFeed) {
		queries := func(n int) (all []gate.PodQuery) {
			for _, ns := range namespaces(n) {
				all = append(all, gate.PodQuery{Namespace: ns, Selector: "app=agent"}, gate.PodQuery{Namespace: ns, Selector: "app=other"})
			}
			return all
		}
		expect := func(what string, namespaces, own int, shared bool, pods int) {
			t.Helper()
			f.SetNeeds(gate.Needs{Pods: queries(namespaces)})
			synctest.Wait()
			got, want := f.watches("pods/"), own
			if shared {
				want++
			}
			if len(got) != want || slices.Contains(got, "pods//") != shared {
				t.Errorf("%s: %d watches, want %d: %.200v", what, len(got), want, got)
			}
			facts := f.facts(t, "a").Pods
			found := 0
			for _, pods := range facts {
				found += len(pods)
			}
			if q := queries(8)[14]; len(facts) != 2*namespaces || found != pods || len(facts[q]) != pods {
				t.Errorf("%s: %d queries observed, with %d pods, of which %s has %d", what, len(facts), found, q.Namespace, len(facts[q]))
			}
		}
		expect("thousands", 4096, 0, true, 1)
		f.handler.take()
		f.api.pods(gate.PodQuery{}).Put(pod("foreign", "another"))
		f.wantChanged(t, "pod in another namespace")
		expect("one namespace more", 4097, 2, true, 1)
		expect("few", 8, 16, false, 0)
		expect("as many as have watches of their own", reflector.WatchesMax, 2*reflector.WatchesMax, false, 0)
		expect("one more", reflector.WatchesMax+1, 0, true, 1)
		expect("one less", reflector.WatchesMax, 0, true, 1)
	})
}

// A watch of pods in all namespaces ends when a single namespace is left, and one of that
// namespace when many are needed.
func TestPodsOfTheLastNamespaceShareAWatchOfIt(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		for _, q := range []gate.PodQuery{{}, {Namespace: "ns-0000"}, {Namespace: "ns-0000", Selector: "app=d7"}} {
			p := labelled("p7", "a", "d7")
			p.Namespace = "ns-0000"
			api.pods(q).Put(p)
		}
	}, func(t *testing.T, f *testFeed) {
		needed := func(n, others int) (found []gate.PodQuery) {
			for _, q := range queries(n) {
				q.Namespace = "ns-0000"
				found = append(found, q)
			}
			for _, ns := range namespaces(others + 1)[1:] {
				found = append(found, gate.PodQuery{Namespace: ns, Selector: "app=agent"})
			}
			return found
		}
		for _, step := range []struct {
			queries, others int
			shared          string
			own             int
		}{
			{40, reflector.WatchesMax, "pods//", 0},
			{40, 0, "pods/ns-0000/", 0},
			{40, reflector.WatchesMax, "pods//", 0},
			{17, 0, "", 17},
			{17, reflector.WatchesMax, "pods//", 0},
			{17, reflector.WatchesMax / 2, "pods//", 0},
			{40, reflector.WatchesMax/2 - 1, "pods/ns-0000/", reflector.WatchesMax/2 - 1},
		} {
			asked := needed(step.queries, step.others)
			f.SetNeeds(gate.Needs{Pods: asked})
			synctest.Wait()
			got, want := f.watches("pods/"), step.own
			if step.shared != "" {
				want++
			}
			if len(got) != want || step.shared != "" && !slices.Contains(got, step.shared) {
				t.Errorf("%d queries, %d other namespaces: watches %v, want %d with %q", step.queries, step.others, got, want, step.shared)
			}
			if facts := f.facts(t, "a").Pods; len(facts) != len(asked) || len(facts[asked[7]]) != 1 {
				t.Errorf("%d queries, %d other namespaces: %d observed, with pods %v", step.queries, step.others, len(facts), facts[asked[7]])
			}
		}
	})
}

// Selectors that cannot be parsed, which nodegate does not create, share no watch: nothing
// would ever stop it. Each has a watch of its own, which the API server rejects.
func TestUnreadableSelectorsShareNoWatch(t *testing.T) {
	runFeed(t, func(*fakeAPI) {}, func(t *testing.T, f *testFeed) {
		unreadable := queries(reflector.WatchesMax + 1)
		for i := range unreadable {
			unreadable[i].Selector += " in ("
		}
		f.SetNeeds(gate.Needs{Pods: unreadable})
		synctest.Wait()
		if got := f.watches("pods/"); slices.Contains(got, "pods/ns/") || len(got) != len(unreadable) {
			t.Errorf("%d watches: %v", len(got), got)
		}
		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		if got := f.watches("pods/"); len(got) != 0 {
			t.Errorf("watches that are not stopped: %v", got)
		}
	})
}
