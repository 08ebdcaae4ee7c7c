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

// A node whose write does not come back holds its slot, and gives it back when it
// is gone.
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
			t.Error("a node was closed although the slot may be taken")
		}
		w.remove("n0000")
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(2 * time.Second)
		if w.closed() != 1 {
			t.Error("the slot of a node that is gone was not given to another")
		}
	})
}

// A write was carried out, nobody was told, and the node cannot be read. By what
// is known of it, it is as before that write, and fit again: its place is not
// given to another by that.
func TestReservationOfAnUncertainWriteIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.stale, w.refreshErr = map[string]gate.Node{}, errors.New("no answer")
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		l := &lossyWriter{world: w}
		defer w.startWith(l)()
		controllertest.Pass(5 * time.Second)
		w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
		w.change("n0001", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(time.Second)
		w.mu.Lock()
		before := w.stale[l.lost]
		before.Labels = map[string]string{"fit": ""} // as with a pod, of which another watch tells
		w.stale[l.lost] = before
		w.mu.Unlock()
		w.change(l.lost, func(n *gate.Node) { n.Labels["fit"] = "" })
		controllertest.Pass(5 * time.Minute)
		if w.closed() != 1 || len(w.nodes[l.lost].Taints) != 1 {
			t.Errorf("%d nodes are closed, want the one of which nothing is known", w.closed())
		}
		w.mu.Lock()
		w.refreshErr = nil
		w.mu.Unlock()
		controllertest.Pass(2 * time.Minute)
		if w.closed() != 1 || len(w.nodes[l.lost].Taints) != 0 {
			t.Errorf("%d nodes are closed, want one: the other", w.closed())
		}
	})
}

// losing loses the answer to the first write, of which the watch does not tell
// either.
type lossyWriter struct {
	*world
	lost string
}

func (l *lossyWriter) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	l.mu.Lock()
	first := l.lost == ""
	if first {
		l.lost, l.stale[n.Name] = n.Name, l.nodes[n.Name]
	}
	l.mu.Unlock()
	node, err := l.world.Apply(ctx, n, d)
	if first {
		return nil, context.DeadlineExceeded
	}
	return node, err
}

// unreliable is an API server on a bad day. It is slow, has writes fail that it
// has carried out, carries out none of others, and finds that nodes have changed;
// and what the watch tells of a write that failed, it tells late.
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

// startWith is start with a writer of its own.
func (w *world) startWith(writer write.Applier) (stop func()) {
	w.writer = writer
	return w.start(logr.Discard(), interceptor.Funcs{})
}

// On a bad day of the API server, with nodes that flap, and a controller that is
// replaced again and again, no more are closed than may be at any moment; and in
// the end, as many as may be.
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
						clear(s.stale) // the next one reads all nodes
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

// A closed node leaves the gate, and cannot be written. It keeps its place until it
// has been opened, also if a person had it open meanwhile: it may come back.
func TestUnselectedNodeCountsWhileItIsClosed(t *testing.T) {
	for name, byHand := range map[string]bool{"closed": false, "open by hand": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { leaves(t, byHand) }) })
	}
}

func leaves(t *testing.T, byHand bool) {
	w := newWorld(t, controllertest.Gate("gate", budget("1")))
	w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
	var fails atomic.Bool
	w.fail = func(node string) error {
		if node == "n0000" && fails.Load() {
			return errors.New("no answer")
		}
		return nil
	}
	defer w.start(logr.Discard(), interceptor.Funcs{})()
	controllertest.Pass(5 * time.Second)
	w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
	controllertest.Pass(2 * time.Second)
	if byHand {
		w.change("n0000", overrideFor(time.Hour, "gate", v1alpha1.StateOpen))
		controllertest.Pass(2 * time.Second)
	}
	fails.Store(true)
	w.change("n0000", func(n *gate.Node) { n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue })
	w.change("n0001", func(n *gate.Node) { delete(n.Labels, "fit") })
	controllertest.Pass(time.Minute)
	if w.tainted("n0000") == byHand || w.tainted("n0001") {
		t.Errorf("the one that leaves is closed: %v, the other %v", w.tainted("n0000"), w.tainted("n0001"))
	}
	fails.Store(false)
	controllertest.Pass(2 * time.Minute)
	if !w.tainted("n0001") || w.tainted("n0000") {
		t.Error("its place was not given to the other when it was open")
	}
}
