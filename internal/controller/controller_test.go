// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// A new leader does not know yet which nodes are closed, and stays within the budget.
func TestNewLeaderKeepsToTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(100, func(i int, n *gate.Node) {
			delete(n.Labels, "fit") // all of them have regressed
			if i < 20 {
				isClosed(n, "gate", v1alpha1.ReasonRegression)
			} else {
				isOpen(n, "gate")
			}
		})
		peak := 0
		w.after = func() { peak = max(peak, w.countClosed()) }
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		defer stop()
		controllertest.Pass(time.Minute)
		if peak > 20 || w.closed() != 20 {
			t.Errorf("%d nodes are closed, and at most %d were at the same time, want 20 of 100", w.closed(), peak)
		}
		// Queued nodes close without any further event.
		w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
		w.change("n0001", func(n *gate.Node) { n.Labels["fit"] = "" })
		controllertest.Pass(time.Minute)
		if peak > 20 || w.closed() != 20 || len(w.node("n0000").Taints) > 0 {
			t.Errorf("after two nodes opened, %d are closed, want 20 again", w.closed())
		}
	})
}

// The budget is used up at once, by any nodes of the fleet.
func TestBudgetIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(100, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isOpen(n, "gate") })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(15 * time.Second)
		if n := w.closed(); n != 20 {
			t.Errorf("%d nodes are closed, want 20 of 100", n)
		}
	})
}

func TestAdoptionIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingAdopt }))
		w.add(100, func(int, *gate.Node) {})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(4 * time.Second)
		if n := w.written(); n < 40 || n > 55 {
			t.Errorf("%d nodes were adopted within 4 s, want about 50", n)
		}
		controllertest.Pass(10 * time.Second)
		if n := w.written(); n != 100 {
			t.Errorf("%d writes for 100 adopted nodes, want one each", n)
		}
		// Adopted nodes were never closed, so there is no time to open.
		if n := testutil.CollectAndCount(w.c.metrics.TimeToOpen); n != 0 {
			t.Errorf("%d series of the time to open, want none", n)
		}
	})
}

// A write that may have been carried out, or is retried at once, keeps its reservation. A
// rejected write releases it.
func TestSlotsAfterFailures(t *testing.T) {
	for _, test := range []struct {
		err  error
		held bool
	}{
		{write.ErrConflict, true}, {write.ErrDenied, false}, {write.ErrGone, false}, {context.DeadlineExceeded, true},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate"))
				w.add(2, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isOpen(n, "gate") })
				w.fail = func(node string) error {
					if node == "n0000" {
						return fmt.Errorf("patching: %w", test.err)
					}
					return nil
				}
				w.start(logr.Discard(), interceptor.Funcs{})()
				set := gateset.New(&gateset.Set{}, gateset.Snapshot{Source: w.GatesFrom(), Gates: w.gates, Complete: true}, gate.KeyPolicy{})
				set.Since["gate"] = 0 // as if the fleet had been reconciled
				w.c.ledger.SetTerms(termsOf(set))
				w.c.set.Store(set)
				for name := range w.copies() {
					w.c.ledger.Set(name, []fleet.GateState{{Gate: "gate", Selected: true, State: v1alpha1.StateOpen}}, 1)
				}
				_, _ = w.c.reconcile(t.Context(), "n0000")
				if _, err := w.c.reconcile(t.Context(), "n0001"); err != nil {
					t.Fatal(err)
				}
				if closed := w.closed() == 1; closed == test.held {
					t.Errorf("the other node closed: %t, want %t", closed, !test.held)
				}
			})
		})
	}
}

// A denied write is logged once and reported in the gate's status. It is retried with
// backoff, and does not delay other nodes.
func TestDeniedWriteIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(3, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		var mu sync.Mutex
		tries, denied := 0, true
		w.fail = func(node string) error {
			mu.Lock()
			defer mu.Unlock()
			if node != "n0000" || !denied {
				return nil
			}
			tries++
			return fmt.Errorf("patching: %w: no such right", write.ErrDenied)
		}
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Minute)
		if w.closed() != 1 {
			t.Errorf("%d nodes are closed, want only the one whose write is denied", w.closed())
		}
		mu.Lock()
		if tries < 5 || tries > 15 {
			t.Errorf("the write was tried %d times in five minutes, want about ten", tries)
		}
		mu.Unlock()
		ng := w.stored("gate")
		ready := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonWriteDenied || !strings.Contains(ready.Message, "n0000: ") || !strings.Contains(ready.Message, "no such right") {
			t.Errorf("condition Ready is %+v", ready)
		}
		if ng.Status.Nodes.Closed != 1 || ng.Status.Nodes.Open != 2 {
			t.Errorf("counts: %+v", ng.Status.Nodes)
		}
		mu.Lock()
		denied = false
		mu.Unlock()
		controllertest.Pass(2 * time.Minute)
		if w.closed() != 0 {
			t.Error("the node did not open when it could be written again")
		}
		lines := strings.Join(log.All(), "\n")
		if strings.Count(lines, "node write denied") != 1 || strings.Count(lines, "can be written again") != 1 || strings.Count(lines, "gate opened") != 3 {
			t.Errorf("want one log line for each transition, got:\n%s", lines)
		}
	})
}

// stored reads a gate from the API server.
func (w *world) stored(name string) *v1alpha1.NodeGate {
	w.t.Helper()
	var ng v1alpha1.NodeGate
	if err := w.c.client.Get(context.Background(), client.ObjectKey{Name: name}, &ng); err != nil {
		w.t.Fatal(err)
	}
	return &ng
}

// The feed does not report a node that was deleted while nodes were listed again. The
// next resync forgets it.
func TestNodeDeletedDuringARelistIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(3, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Second)
		w.mu.Lock()
		w.unsynced = true
		w.mu.Unlock()
		w.remove("n0000")
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(time.Second)
		w.mu.Lock()
		w.unsynced = false
		w.mu.Unlock()
		w.c.GatesChanged()
		controllertest.Pass(5 * time.Second)
		if n := w.stored("gate").Status.Nodes.Selected; n != 2 {
			t.Errorf("%d nodes are counted, want the 2 that are left", n)
		}
	})
}

// Objects name nodes that do not exist, such as pods of a deleted node. If that is reported while
// nodes are listed again, nothing of it is kept afterwards.
func TestUnknownNodeDuringARelistIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(int, *gate.Node) {})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		w.setUnsynced(true)
		w.c.NodeChanged("deleted", gate.ChangeOf(gate.Aspect{Kind: gate.AspectPods}))
		controllertest.Pass(time.Second)
		w.setUnsynced(false)
		w.c.GatesChanged()
		controllertest.Pass(time.Second)
		if names := w.c.nodes.names(); !slices.Equal(names, []string{"n0000"}) {
			t.Errorf("states of nodes %v are kept, want only that of n0000", names)
		}
	})
}

// A node that is not known while nodes are listed again is not considered deleted when
// the list completes a moment later. It keeps its part of the budget.
func TestNodeIsNotForgottenDuringARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(3, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonRegression) })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Second)
		w.mu.Lock()
		w.unsynced, w.syncsOnRead = true, true
		w.mu.Unlock()
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(time.Second)
		if _, known := w.c.ledger.GateStates("n0000"); !known {
			t.Error("the ledger does not contain n0000, which exists")
		}
	})
}

// Series of a deleted gate are deleted, although its nodes open afterwards.
func TestSeriesAreDeletedWithTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(3, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		m := w.c.metrics
		if testutil.CollectAndCount(m.Nodes) != 6 {
			t.Error("the gate has no series")
		}
		w.setGates(true)
		controllertest.Pass(5 * time.Second)
		if w.closed() != 0 {
			t.Fatal("the deleted gate's nodes did not open")
		}
		for name, n := range map[string]int{
			"nodes": testutil.CollectAndCount(m.Nodes), "opens": testutil.CollectAndCount(m.Opens), "conditions": testutil.CollectAndCount(m.Conditions), "proved": testutil.CollectAndCount(m.Proved),
			"timeToOpen": testutil.CollectAndCount(m.TimeToOpen), "closes": testutil.CollectAndCount(m.Closes),
		} {
			if n != 0 {
				t.Errorf("%d series of %s remain", n, name)
			}
		}
	})
}

func TestTransitionsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(_ int, n *gate.Node) {
			n.Created = time.Now().Add(-90 * time.Second)
			isClosed(n, "gate", v1alpha1.ReasonBirth)
			n.Records["gate"] = `{"state":"Closed","reason":"Birth","boot":"boot","taint":"` + controllertest.TaintKey + `:NoSchedule","source":"crd"}`
		})
		var tries atomic.Int32
		w.fail = func(string) error {
			if tries.Add(1) <= 5 {
				return write.ErrConflict
			}
			return nil
		}
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		w.c.GatesChanged()
		controllertest.Pass(10 * time.Second)
		opens := testutil.ToFloat64(w.c.metrics.Opens.WithLabelValues("gate", string(v1alpha1.ReasonSignalsHold)))
		lines := strings.Join(log.All(), "\n")
		if opens != 1 || strings.Count(lines, "gate opened") != 1 || !strings.Contains(lines, `"closedSeconds"=90`) {
			t.Errorf("%v openings were counted, want 1, after 90 s; log:\n%s", opens, lines)
		}
	})
}

func TestDecisionsHandOnState(t *testing.T) {
	s, at := newNodeStates(), time.Now()
	n := gate.Node{Name: "n1", UID: "first"}
	s.keep(&gateset.Set{}, &n, &gate.Decision{Verdicts: []gate.Verdict{{Gate: "a", Lost: []gate.Lost{{}, {Since: at}}}, {Gate: "b", Lost: []gate.Lost{{Since: at, Rollout: true}}}}}, false, nil)
	facts := gate.Facts{Node: n}
	if s.recall(&facts, &gateset.Set{}); len(facts.Lost["a"]) != 2 || facts.Lost["a"][1].Since != at || facts.Lost["b"][0] != (gate.Lost{Since: at, Rollout: true}) {
		t.Errorf("recalled %v, want %v for both", facts.Lost, at)
	}
	facts = gate.Facts{Node: gate.Node{Name: "n1", UID: "second"}}
	if s.recall(&facts, &gateset.Set{}); facts.Lost != nil {
		t.Error("the state of a node is recalled for a new node with its name")
	}
	if s.keep(&gateset.Set{}, &n, &gate.Decision{}, false, nil); s.byName["n1"].carried != nil {
		t.Error("an empty state is stored")
	}
}

// The pods of a DaemonSet can only be watched when the DaemonSet is known.
func TestReadyWaitsForThePodsOfDaemonSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: "agent"}}
		}))
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Second)
		if err := w.c.Ready(); err != nil {
			t.Fatalf("not ready: %v", err)
		}
		w.mu.Lock()
		w.daemonSets = []gate.DaemonSet{{Namespace: "ns", Name: "agent", Pods: gate.PodQuery{Namespace: "ns", Selector: "app=agent"}}}
		w.mu.Unlock()
		if w.c.Ready() == nil {
			t.Error("ready before the DaemonSet's pods are watched")
		}
		w.c.GatesChanged()
		controllertest.Pass(time.Second)
		if err := w.c.Ready(); err != nil {
			t.Errorf("not ready although they are watched: %v", err)
		}
	})
}
