// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// podsStatus returns the status of the feed of the query's pods.
func (f *testFeed) podsStatus(t *testing.T) reflector.Status {
	t.Helper()
	all := f.Status()
	i := slices.IndexFunc(all, func(s reflector.Status) bool { return s.Name == PodsName(query) })
	if i < 0 {
		t.Fatalf("no feed of pods: %+v", all)
	}
	return all[i]
}

// observePods runs a test with a feed that has read a ready pod of the query.
func observePods(t *testing.T, test func(t *testing.T, f *testFeed, pods *fakeKind)) {
	t.Helper()
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.pods(query).Put(kubetest.Pod("p", "p1", "a", true))
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		synctest.Wait()
		test(t, f, f.api.pods(query))
	})
}

func TestIdleWatchIsNotSilent(t *testing.T) {
	observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		kubetest.Pass(time.Hour)
		if s := f.podsStatus(t); !s.Live || f.silences.Load() != 0 || pods.lists != 1 {
			t.Errorf("after an hour without changes: %+v, listed %d times", s, pods.lists)
		}
	})
}

// A watch that stays open and delivers nothing is given up, and everything is listed
// again.
func TestSilentWatch(t *testing.T) {
	observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		f.api.set(func() { pods.muted = true })
		pods.Put(kubetest.Pod("p", "p1", "a", false))
		kubetest.Pass(reflector.SilentAfter + time.Second)
		if s := f.podsStatus(t); s.Live || s.Synced || f.silences.Load() != 1 || !errors.Is(s.Err, reflector.ErrSilent) {
			t.Errorf("silent watch: %+v", s)
		}
		if _, known := f.facts(t, "a").Pods[query]; known {
			t.Error("pods are known although their watch is silent")
		}
		if got := f.Unsynced(); !slices.Equal(got, []string{PodsName(query)}) {
			t.Errorf("unsynced = %v", got)
		}
		kubetest.Pass(reflector.SilentAfter + 2*reflector.RetryMax)
		if s := f.podsStatus(t); s.Live || f.silences.Load() != 2 {
			t.Errorf("list without a response: %+v", s)
		}
		f.api.set(func() { pods.muted = false })
		kubetest.Pass(reflector.SilentAfter + 2*reflector.RetryMax)
		if s := f.podsStatus(t); !s.Live || s.Err != nil {
			t.Errorf("API server responds again: %+v", s)
		}
		if all := f.facts(t, "a").Pods[query]; len(all) != 1 || all[0].Ready {
			t.Errorf("pods = %+v", all)
		}
	})
}

// A silent watch does not affect other feeds.
func TestSilentWatchDoesNotAffectOthers(t *testing.T) {
	observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		f.api.set(func() { pods.muted = true })
		kubetest.Pass(time.Hour)
		if !f.NodesSynced() || f.api.nodes().lists != 1 {
			t.Errorf("nodes synced: %v, listed %d times", f.NodesSynced(), f.api.nodes().lists)
		}
	})
}

// PodsAt does not advance while the watch of pods delivers nothing.
func TestPodsAt(t *testing.T) {
	observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		age := func() time.Duration { return time.Since(f.facts(t, "a").PodsAt) }
		if got := age(); got != 0 {
			t.Errorf("just read: PodsAt is %s old", got)
		}
		kubetest.Pass(2*time.Minute + 30*time.Second)
		if got := age(); got != 30*time.Second {
			t.Errorf("30 s after a bookmark: PodsAt is %s old", got)
		}
		pods.Put(kubetest.Pod("p", "p1", "a", false))
		kubetest.Pass(reflector.BurstWindow)
		if got := age(); got != reflector.BurstWindow {
			t.Errorf("after an event: PodsAt is %s old", got)
		}
		f.api.set(func() { pods.muted = true })
		kubetest.Pass(2 * time.Minute)
		if got := age(); got != 2*time.Minute+reflector.BurstWindow {
			t.Errorf("silent watch: PodsAt is %s old", got)
		}
	})
}

// If a node is observed to reboot, Boot contains the pods that are ready at that time.
func TestBootContainsReadyPods(t *testing.T) {
	observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		pods.Put(kubetest.Pod("not ready", "p2", "a", false))
		synctest.Wait()
		f.api.nodes().Put(kubetest.Node("a", "a1", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "later" }))
		synctest.Wait()
		pods.Put(kubetest.Pod("new", "p3", "a", true))
		synctest.Wait()
		boot := f.facts(t, "a").Boot
		want := []gate.Incarnation{incarnation(kubetest.Pod("p", "p1", "a", true))}
		if boot.After != "boot" || !slices.Equal(boot.Known, want) {
			t.Errorf("boot = %+v, want After %q and Known %v", boot, "boot", want)
		}
	})
}
