// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// A node whose write receives no response keeps its reservation until it is deleted.
func TestDeletedNodeReleasesItsReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		w.fail = func(node string) error {
			if node == "n0000" {
				return context.DeadlineExceeded
			}
			return nil
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		for _, name := range []string{"n0000", "n0001"} {
			w.change(name, func(n *gate.Node) { delete(n.Labels, "fit") })
			controllertest.Pass(time.Minute)
		}
		if w.closed() != 0 {
			t.Error("a node was closed although the budget may be used up")
		}
		w.remove("n0000")
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(2 * time.Second)
		if w.closed() != 1 {
			t.Error("the reservation of a deleted node was not released")
		}
	})
}

// A write is carried out without a response, and the node cannot be read. According to the
// feed, the node is open as before the write, and fit again. Its reservation is kept
// nevertheless.
func TestReservationOfAnUncertainWriteIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.stale, w.refreshErr = map[string]gate.Node{}, errors.New("no response")
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		l := &lossyWriter{world: w}
		defer w.startWith(l)()
		controllertest.Pass(5 * time.Second)
		w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
		w.change("n0001", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(time.Second)
		w.mu.Lock()
		before := w.stale[l.lost]
		before.Labels = map[string]string{"fit": ""} // like a pod, which another watch reports
		w.stale[l.lost] = before
		w.mu.Unlock()
		w.change(l.lost, func(n *gate.Node) { n.Labels["fit"] = "" })
		controllertest.Pass(5 * time.Minute)
		if w.closed() != 1 || len(w.node(l.lost).Taints) != 1 {
			t.Errorf("%d nodes are closed, want only the one whose state is uncertain", w.closed())
		}
		w.mu.Lock()
		w.refreshErr = nil
		w.mu.Unlock()
		controllertest.Pass(2 * time.Minute)
		if w.closed() != 1 || len(w.node(l.lost).Taints) != 0 {
			t.Errorf("%d nodes are closed, want only the other one", w.closed())
		}
	})
}

// The response to a write that ends an override is lost, and the feed still reports the override.
// Like the API server, the fake rejects a decision that is based on this override. If it did not,
// the gate would close on both nodes under a budget of one.
func TestBudgetAfterALostWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate", budget("0"))
		w := newWorld(t, ng)
		w.stale = map[string]gate.Node{}
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		defer w.startWith(&lossyWriter{world: w})()
		controllertest.Pass(5 * time.Second)
		for _, name := range []string{"n0000", "n0001"} {
			w.change(name, func(n *gate.Node) { delete(n.Labels, "fit") })
			controllertest.Pass(time.Second)
		}
		w.change("n0000", overrideFor(time.Second, "gate", v1alpha1.StateOpen))
		controllertest.Pass(2 * time.Second)
		w.setGates(true, edited(ng, "1"))
		controllertest.Pass(3 * time.Second)
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(3 * time.Second)
		var closed []string
		for name, n := range w.copies() {
			if r, err := gate.ParseRecord(n.Records["gate"]); err == nil && r.State == v1alpha1.StateClosed {
				closed = append(closed, name)
			}
		}
		if len(closed) != 1 {
			t.Errorf("the gate is closed on %v, and the budget is one", closed)
		}
	})
}

// lossyWriter loses the response to the first write, and the watch does not report that
// write either.
type lossyWriter struct {
	*world
	lost string
}

func (l *lossyWriter) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	l.mu.Lock()
	first, before := l.lost == "", l.nodes[n.Name]
	l.mu.Unlock()
	node, err := l.world.Apply(ctx, n, d)
	if first {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost, l.stale[n.Name] = n.Name, before
		return nil, context.DeadlineExceeded
	}
	return node, err
}

// unreliable is a slow API server that returns errors for writes that it has carried out
// and for writes that it has not, and conflicts. Its watch reports writes that failed with
// a delay.
type unreliable struct {
	*world
	mu  sync.Mutex
	rng *rand.Rand
}

func (u *unreliable) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	u.mu.Lock()
	what, slow := u.rng.IntN(5), time.Duration(u.rng.IntN(100))*time.Millisecond
	u.mu.Unlock()
	<-time.After(slow)
	switch what {
	case 0:
		return nil, fmt.Errorf("patching: %w", write.ErrConflict)
	case 1:
		return nil, context.DeadlineExceeded
	case 2:
		u.world.mu.Lock()
		before := u.nodes[n.Name]
		u.world.mu.Unlock()
		if _, err := u.world.Apply(ctx, n, d); err != nil {
			return nil, err
		}
		u.world.mu.Lock()
		u.stale[n.Name] = before
		u.world.mu.Unlock()
		c := u.c
		time.AfterFunc(20*slow, func() {
			_ = u.Refresh(ctx, n.Name)
			c.NodeChanged(n.Name, gate.Everything())
		})
		return nil, context.DeadlineExceeded
	}
	return u.world.Apply(ctx, n, d)
}

// startWith is start with another writer.
func (w *world) startWith(writer write.Applier) (stop func()) {
	w.writer = writer
	return w.start(logr.Discard(), interceptor.Funcs{})
}

// With an unreliable API server, flapping nodes, and a controller that is replaced
// repeatedly, the budget is never exceeded. In the end it is used completely.
func TestStormWithAnUnreliableAPIServer(t *testing.T) {
	for seed := range seeds(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, controllertest.Gate("gate", budget("20%")))
				s.stale = map[string]gate.Node{}
				rng := rand.New(rand.NewPCG(seed, 1))
				u := &unreliable{world: s.world, rng: rand.New(rand.NewPCG(seed, 2))}
				stop := s.startWith(u)
				controllertest.Pass(5 * time.Second)
				s.loseSignals()
				for range 20 {
					controllertest.Pass(time.Duration(rng.IntN(5000)) * time.Millisecond)
					for range rng.IntN(30) {
						s.change(s.lost[rng.IntN(len(s.lost))], func(n *gate.Node) {
							if _, fit := n.Labels["fit"]; fit {
								delete(n.Labels, "fit")
							} else {
								n.Labels["fit"] = ""
							}
						})
					}
					if rng.IntN(4) == 0 {
						stop()
						s.mu.Lock()
						clear(s.stale) // the next controller lists all nodes
						s.mu.Unlock()
						stop = s.startWith(u)
					}
				}
				s.loseSignals()
				controllertest.Pass(5 * time.Minute)
				s.checkBudgetIsUsed()
				s.regainSignals()
				controllertest.Pass(5 * time.Minute)
				s.checkAllAreOpen()
				stop()
			})
		})
	}
}

// A closed node that the gate no longer selects, and that cannot be written, counts against
// the budget until it has been opened, even if an override keeps it open: the gate may
// select it again.
func TestUnselectedNodeCountsWhileItIsClosed(t *testing.T) {
	for name, overridden := range map[string]bool{"closed": false, "open by override": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testUnselectedNode(t, overridden) }) })
	}
}

func testUnselectedNode(t *testing.T, overridden bool) {
	w := newWorld(t, controllertest.Gate("gate", budget("1")))
	w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
	var fails atomic.Bool
	w.fail = func(node string) error {
		if node == "n0000" && fails.Load() {
			return errors.New("no response")
		}
		return nil
	}
	defer w.start(logr.Discard(), interceptor.Funcs{})()
	controllertest.Pass(5 * time.Second)
	w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
	controllertest.Pass(2 * time.Second)
	if overridden {
		w.change("n0000", overrideFor(time.Hour, "gate", v1alpha1.StateOpen))
		controllertest.Pass(2 * time.Second)
	}
	fails.Store(true)
	w.change("n0000", func(n *gate.Node) { n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue })
	w.change("n0001", func(n *gate.Node) { delete(n.Labels, "fit") })
	controllertest.Pass(time.Minute)
	if w.tainted("n0000") == overridden || w.tainted("n0001") {
		t.Errorf("the unselected node is closed: %t, the other one: %t", w.tainted("n0000"), w.tainted("n0001"))
	}
	fails.Store(false)
	controllertest.Pass(2 * time.Minute)
	if !w.tainted("n0001") || w.tainted("n0000") {
		t.Error("the other node was not closed when the unselected one was open")
	}
}
