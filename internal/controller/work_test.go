// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// What is in hand is finished, and what waits is the next leader's.
func TestStopFinishesWhatIsInHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, testGate("gate"))
		w.add(500, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		w.fail = func(string) error { <-time.After(time.Second); return nil }
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		pass(1500 * time.Millisecond)
		for name := range w.nodes {
			w.c.queue.Add(name)
		}
		before, began := w.written(), time.Now()
		stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("stopping took %s", took)
		}
		if n := w.written() - before; n != 16 {
			t.Errorf("%d writes were finished after the stop, want the 16 in hand", n)
		}
	})
}

func TestStopDoesNotWaitForAnAPIServerThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bubble(t, func(*testing.T) {
		work, done := finishing(context.WithoutCancel(ctx))
		defer done()
		if deadline, _ := work.Deadline(); time.Until(deadline) != writeTimeout {
			t.Errorf("a write may take %s", time.Until(deadline))
		}
	})
	cancel()
	bubble(t, func(*testing.T) {
		stopping, cancel := context.WithCancel(context.Background())
		work, done := finishing(stopping)
		defer done()
		cancel()
		began := time.Now()
		<-work.Done()
		if took := time.Since(began); took != stopTimeout {
			t.Errorf("what is in hand had %s, want %s", took, stopTimeout)
		}
	})
}

func TestLiveness(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, testGate("gate"))
		w.add(2000, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		hang := make(chan struct{})
		var mu sync.Mutex
		hangs := 0 // how many workers hang for good; the others are slow
		w.fail = func(string) error {
			mu.Lock()
			hangs--
			forGood := hangs >= 0
			mu.Unlock()
			if forGood {
				<-hang
			}
			<-time.After(writeTimeout)
			return errors.New("no answer")
		}
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		pass(time.Second)
		for name := range w.nodes {
			w.c.queue.Add(name) // half an hour's work
		}
		alive := func(d time.Duration) error {
			for range int(d / (10 * time.Second)) {
				if err := w.c.Live(); err != nil {
					return err
				}
				pass(10 * time.Second)
			}
			return nil
		}
		// A long queue and an API server that answers nothing is no reason to be
		// killed, nor is one worker that hangs.
		mu.Lock()
		hangs = 1
		mu.Unlock()
		if err := alive(10 * time.Minute); err != nil {
			t.Errorf("not alive: %v", err)
		}
		mu.Lock()
		hangs = 16
		mu.Unlock()
		if alive(5*time.Minute) == nil {
			t.Error("alive although all workers hang")
		}
		mu.Lock()
		hangs = 0
		mu.Unlock()
		close(hang)
		stop()
		if err := w.c.Live(); err != nil {
			t.Errorf("a replica that does not lead is not alive: %v", err)
		}
	})
}

// A replica that waits to lead is ready, and keeps no list of nodes.
func TestStandby(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, testGate("gate"))
		w.add(10, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		w.c = New(Options{}, apiClient(t, interceptor.Funcs{}), newTestMetrics())
		w.c.Attach(w, w, nil)
		defer w.c.queue.ShutDown()
		if w.c.Ready() == nil {
			t.Error("ready before the gates were compiled")
		}
		w.c.refreshGates(nil)
		for name := range w.nodes {
			w.c.NodeChanged(name, gate.Everything())
		}
		if err := w.c.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		if w.c.queue.Len() != 0 || len(w.c.sweep.pending) != 0 {
			t.Error("a standby keeps a list of nodes")
		}
	})
}
