// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// retriedErrors are the errors after which client-go would resume a watch at the old
// resource version.
var retriedErrors = map[string]error{
	"connection refused": syscall.ECONNREFUSED,
	"too many requests":  apierrors.NewTooManyRequests("busy", 1),
}

// recovery is a time by which requests are repeated after an outage, whatever the jitter.
const recovery = 4 * reflector.RetryMax

// observeOutage runs a test for each of retriedErrors, with a feed that has read a ready
// pod, and whose requests for pods have failed for two minutes.
func observeOutage(t *testing.T, test func(t *testing.T, f *testFeed, pods *fakeKind)) {
	t.Helper()
	for name, err := range retriedErrors {
		t.Run(name, func(t *testing.T) {
			observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
				kubetest.Pass(2 * time.Second) // a shorter watch counts as broken
				pods.set(err)
				pods.hangUp()
				kubetest.Pass(2 * time.Minute)
				if s := f.podsStatus(t); s.Live || s.Err == nil {
					t.Fatalf("during the outage: %+v", s)
				}
				f.handler.take()
				test(t, f, pods)
			})
		})
	}
}

// At no time after an outage do facts from before it count as observed.
func TestNoFactsFromBeforeAnOutage(t *testing.T) {
	observeOutage(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		pods.Put(kubetest.Pod("p", "p1", "a", false))
		var stale, current atomic.Int32
		f.handler.mu.Lock()
		f.handler.onChange = func() {
			facts, _ := f.Facts("a")
			switch all, observed := facts.Pods[query]; {
			case !observed:
			case len(all) == 1 && !all[0].Ready:
				current.Add(1)
			default:
				stale.Add(1)
			}
		}
		f.handler.mu.Unlock()
		pods.set(nil)
		kubetest.Pass(recovery)
		synctest.Wait()
		if stale.Load() > 0 || current.Load() == 0 {
			t.Errorf("%d decisions with the pod as it was before the outage, %d with the current one", stale.Load(), current.Load())
		}
	})
}

// A feed whose objects do not change is live again soon after an outage, by reading
// everything, and this is announced and logged once.
func TestQuietFeedAfterAnOutage(t *testing.T) {
	observeOutage(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		logged := f.logged.Load()
		pods.set(nil)
		kubetest.Pass(recovery)
		if s := f.podsStatus(t); !s.Live || s.Err != nil || pods.lists != 2 {
			t.Errorf("after the outage: %+v, listed %d times", s, pods.lists)
		}
		kubetest.Pass(time.Hour)
		if names, gates := f.handler.take(); len(names) != 0 || gates != 1 {
			t.Errorf("announced: nodes %v, gates %d times; want once that the pods are known", names, gates)
		}
		if got := f.logged.Load() - logged; got != 1 || pods.lists != 2 {
			t.Errorf("%d log lines, listed %d times", got, pods.lists)
		}
		// The next watch does not count as a list.
		known := f.podsStatus(t).Received
		pods.hangUp()
		kubetest.Pass(10 * time.Second)
		if s := f.podsStatus(t); !s.Live || s.Received.Before(known) || pods.lists != 2 {
			t.Errorf("after a resumed watch: %+v, received before at %s, listed %d times", s, known, pods.lists)
		}
	})
}

// API servers end each watch after a few minutes. It is resumed without any effect.
func TestWatchThatEndsIsResumed(t *testing.T) {
	observePods(t, func(t *testing.T, f *testFeed, pods *fakeKind) {
		logged := f.logged.Load()
		for range 3 {
			kubetest.Pass(5 * time.Minute)
			f.handler.take()
			pods.hangUp()
			synctest.Wait()
			if s := f.podsStatus(t); !s.Live || s.Err != nil {
				t.Errorf("%+v", s)
			}
			if names, gates := f.handler.take(); len(names) != 0 || gates != 0 {
				t.Errorf("announced: nodes %v, gates %d times", names, gates)
			}
		}
		pods.Put(kubetest.Pod("p", "p1", "a", false))
		f.wantChanged(t, "event of the resumed watch", "a")
		if got := f.logged.Load() - logged; got != 0 || pods.lists != 1 {
			t.Errorf("%d log lines, listed %d times", got, pods.lists)
		}
	})
}

// While the first read of a feed fails, the feed reports the error, not a silent watch, and
// does not count as loading.
func TestFailedFirstRead(t *testing.T) {
	needs := gate.Needs{Objects: []gate.ObjectQuery{testQuery("", "")}, Pods: []gate.PodQuery{query}}
	failing := []string{objectsName(testSource), PodsName(query)}
	for name, err := range retriedErrors {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) {
				api.nodes().Put(kubetest.Node("a", "a1"))
				api.objects(testSource).set(err)
				api.pods(query).set(err)
			}, func(t *testing.T, f *testFeed) {
				f.SetNeeds(needs)
				for _, pass := range []time.Duration{recovery, 10 * time.Minute} {
					kubetest.Pass(pass)
					for _, s := range f.Status() {
						if slices.Contains(failing, s.Name) && (s.Synced || !errors.Is(s.Err, err)) {
							t.Errorf("after %s: %+v, want the error %q", pass, s, err)
						}
					}
					if got := f.Unsynced(); !slices.Equal(got, []string{PodsName(query)}) {
						t.Errorf("after %s, unsynced: %q, want only the pods", pass, got)
					}
					if f.facts(t, "a").Loading {
						t.Errorf("after %s, it counts as loading", pass)
					}
				}
				if got := f.silences.Load(); got != 0 {
					t.Errorf("%d silent watches, want none", got)
				}
			})
		})
	}
}

// While objects can be listed, but not watched, they count as unknown. This is announced and
// logged once, not after each list: each announcement makes the leader evaluate all nodes.
func TestObjectsThatCannotBeWatched(t *testing.T) {
	for name, err := range map[string]error{
		"not allowed":       errForbidden,
		"not supported":     apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "ciliumnodes"}, "watch"),
		"too many requests": apierrors.NewTooManyRequests("busy", 1),
	} {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) {
				api.nodes().Put(kubetest.Node("a", "a1"))
				api.objects(testSource).watchErr = err
			}, func(t *testing.T, f *testFeed) { testUnwatchable(t, f, f.api.objects(testSource), err) })
		})
	}
}

func testUnwatchable(t *testing.T, f *testFeed, kind *fakeKind, err error) {
	t.Helper()
	query := testQuery("", "")
	observed := func() bool {
		_, known := f.facts(t, "a").Objects[query]
		return known
	}
	f.handler.take()
	f.SetNeeds(gate.Needs{Objects: []gate.ObjectQuery{query}})
	kubetest.Pass(10 * time.Minute)
	if _, gates := f.handler.take(); gates > 2 || f.logged.Load() > 1 || observed() { // twice after the first list
		t.Errorf("announced %d times, %d log lines, observed %t; want at most 2, 1, false", gates, f.logged.Load(), observed())
	}
	if got := f.StatusOf(gate.Needs{Objects: []gate.ObjectQuery{query}}); !slices.ContainsFunc(got, func(s reflector.Status) bool { return errors.Is(s.Err, err) }) {
		t.Errorf("status %+v, want the error %q", got, err)
	}
	logged := f.logged.Load()
	f.api.set(func() { kind.watchErr, kind.streamErr = nil, errForbidden }) // it is listed, and then watched
	kubetest.Pass(recovery)
	if _, gates := f.handler.take(); gates != 1 || f.logged.Load() != logged+1 || !observed() {
		t.Errorf("when it can be watched: announced %d times, %d more log lines, observed %t; want 1, 1, true", gates, f.logged.Load()-logged, observed())
	}
	kind.Put(testObject("a", "a", true))
	f.wantChanged(t, "an event of the accepted watch", "a")
	kind.hangUp()
	kubetest.Pass(time.Minute)
	if _, gates := f.handler.take(); gates != 0 || !observed() {
		t.Errorf("resumed: announced %d times, observed %t; want 0, true", gates, observed())
	}
}
