// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/readinessrules"
)

// A rule that begins or ceases to manage a gate's taint is detected within a minute. While
// no rule changes, nodes are reconciled only once per refreshInterval.
func TestReadinessRulesAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fleet = 50
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(fleet, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		var managed atomic.Bool
		defer w.start(logr.Discard(), listingRules(func() ([]unstructured.Unstructured, error) {
			if managed.Load() {
				return []unstructured.Unstructured{rule(controllertest.TaintKey)}, nil
			}
			return nil, nil
		}))()
		accepted := func() bool {
			return meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted)
		}
		controllertest.Pass(10 * time.Second)
		before := w.readCount()
		controllertest.Pass(refreshInterval + readinessrules.Interval)
		reads := w.readCount() - before
		if reads < fleet || reads > 2*fleet {
			t.Errorf("%d nodes were reconciled %d times in %s, want once each", fleet, reads, refreshInterval+readinessrules.Interval)
		}
		for _, now := range []bool{true, false} {
			managed.Store(now)
			controllertest.Pass(readinessrules.Interval + 5*time.Second)
			if accepted() == now {
				t.Errorf("accepted: %t, although a rule manages its taint: %t", accepted(), now)
			}
		}
	})
}

// While rules are watched, a change of a rule's metadata is detected at once. A change of
// its status only, of which node-readiness-controller makes one for each node, causes no
// list.
func TestReadinessRulesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		var managed atomic.Bool
		var lists atomic.Int64
		funcs := listingRules(func() ([]unstructured.Unstructured, error) {
			lists.Add(1)
			if managed.Load() {
				return []unstructured.Unstructured{rule(controllertest.TaintKey)}, nil
			}
			return nil, nil
		})
		events := watch.NewRaceFreeFake()
		funcs.Watch = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return events, nil
		}
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(5 * time.Second)
		for _, c := range []struct {
			managed bool
			send    func(runtime.Object)
			version int64
			listed  bool
		}{
			{true, events.Add, 1, true}, {true, events.Modify, 1, false}, {true, events.Modify, 2, true}, {false, events.Delete, 2, true}, {true, events.Add, 1, true},
		} {
			managed.Store(c.managed)
			before := lists.Load()
			c.send(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: "rule", Generation: c.version}})
			controllertest.Pass(time.Second)
			if listed := lists.Load() > before; listed != c.listed {
				t.Errorf("generation %d: listed %t, want %t", c.version, listed, c.listed)
			}
			if accepted := meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted); accepted == c.managed {
				t.Errorf("accepted: %t, although a rule manages its taint: %t", accepted, c.managed)
			}
		}
	})
}

// While it is unknown whether a rule manages a gate's taint, the gate closes nothing. If
// the list never succeeds, the gate works after readinessrules.MaxWait.
func TestFirstListOfReadinessRulesFails(t *testing.T) {
	for name, c := range map[string]struct {
		fails time.Duration
		acts  bool // in the end
	}{
		"then succeeds, with a rule": {20 * time.Second, false},
		"continues to fail":          {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate"))
				w.add(10, func(_ int, n *gate.Node) { // new, and open
					delete(n.Labels, "fit")
					n.Created = time.Now()
				})
				succeeds := time.Now().Add(c.fails)
				defer w.start(logr.Discard(), listingRules(func() ([]unstructured.Unstructured, error) {
					if time.Now().Before(succeeds) {
						return nil, errors.New("no response")
					}
					return []unstructured.Unstructured{rule(controllertest.TaintKey)}, nil
				}))()
				controllertest.Pass(readinessrules.MaxWait - time.Second)
				if w.written() > 0 {
					t.Errorf("%d nodes were written while it was unknown whether a rule manages the taint", w.written())
				}
				controllertest.Pass(time.Minute)
				if got := w.written() > 0; got != c.acts {
					t.Errorf("the gate works: %t, want %t", got, c.acts)
				}
			})
		})
	}
}

// A replica that is elected again knows which keys rules managed in its previous term. A gate with
// such a key does not act if lists of rules fail for longer than gates wait for the first one, as
// they do after an outage of the API server.
func TestNextTermKnowsTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(_ int, n *gate.Node) { // the taint is another controller's
			n.Taints = []corev1.Taint{{Key: controllertest.TaintKey, Effect: corev1.TaintEffectNoSchedule}}
		})
		var fails atomic.Bool
		funcs := listingRules(func() ([]unstructured.Unstructured, error) {
			if fails.Load() {
				return nil, errors.New("no response")
			}
			return []unstructured.Unstructured{rule(controllertest.TaintKey)}, nil
		})
		stop := w.start(logr.Discard(), funcs)
		controllertest.Pass(5 * time.Second)
		stop()
		fails.Store(true)
		w.tookOver, w.before = true, w.c
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(readinessrules.MaxWait + 2*statusInterval)
		if meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted) {
			t.Error("the gate is accepted although a rule manages its taint")
		}
		if w.closed() != 1 {
			t.Error("the taint has been removed, which another controller added")
		}
		w.wantParameters("after lists have failed", "map[]")
	})
}

// While lists of rules hang, the last result remains valid, and nothing waits for a list more
// than once: a change that is found when nodes have been listed again takes effect at once. The
// result of a slow list is used when it arrives.
func TestListOfReadinessRulesHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		var hangs atomic.Bool
		var managed atomic.Pointer[unstructured.Unstructured]
		answer := make(chan struct{})
		funcs := listingRules(func() (all []unstructured.Unstructured, err error) {
			if hangs.Load() {
				select {
				case <-time.After(readinessrules.Timeout):
					return nil, context.DeadlineExceeded
				case <-answer:
				}
			}
			if r := managed.Load(); r != nil {
				all = append(all, *r)
			}
			return all, nil
		})
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(5 * time.Second)

		hangs.Store(true)
		w.c.GatesChanged()
		controllertest.Pass(time.Second) // for this list
		for range 3 {
			w.mu.Lock()
			w.unsynced = true
			w.mu.Unlock()
			w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
			controllertest.Pass(time.Second)
			w.mu.Lock()
			w.unsynced = false
			w.mu.Unlock()
			w.c.GatesChanged()
			controllertest.Pass(2 * refreshDelay)
			if w.closed() > 0 {
				t.Fatal("the gate has not opened although the nodes are synced")
			}
			w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		}

		controllertest.Pass(2 * readinessrules.Timeout)
		managed.Store(new(rule(controllertest.TaintKey)))
		w.c.GatesChanged()
		controllertest.Pass(readinessrules.Timeout / 2)
		close(answer)
		controllertest.Pass(2 * statusInterval)
		if meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted) {
			t.Error("the rule was not found by a slow list")
		}
	})
}

// A gate does not act if a rule that is older than the gate manages its taint, even if rules are
// not watched.
func TestReadinessRuleOlderThanAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(10, func(_ int, n *gate.Node) { // new, and open
			delete(n.Labels, "fit")
			n.Created = time.Now().Add(time.Minute)
		})
		var managed atomic.Bool
		defer w.start(logr.Discard(), listingRules(func() (all []unstructured.Unstructured, err error) {
			<-time.After(readinessrules.Patience / 2)
			if managed.Load() {
				all = append(all, rule(controllertest.TaintKey))
			}
			return all, nil
		}))()
		controllertest.Pass(5 * time.Second)
		managed.Store(true)
		w.setGates(true, controllertest.Gate("gate"))
		controllertest.Pass(10 * time.Second)
		if n := w.written(); n > 0 {
			t.Errorf("%d nodes were written although a rule manages the taint", n)
		}
	})
}

// listingRules returns the result of rules for lists of NodeReadinessRules.
func listingRules(rules func() ([]unstructured.Unstructured, error)) interceptor.Funcs {
	funcs := allowingAllBut(nil)
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (err error) {
		all, is := list.(*unstructured.UnstructuredList)
		if !is {
			return c.List(ctx, list, options...)
		}
		all.Items, err = rules()
		return err
	}
	return funcs
}

// rule returns a NodeReadinessRule that manages a key.
func rule(key string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "rule"},
		"spec":     map[string]any{"taint": map[string]any{"key": key}},
	}}
}
