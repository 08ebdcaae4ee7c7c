// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	"github.com/nodegate/nodegate/internal/nodequeue"
)

// Work in progress is completed. Queued nodes are left to the next leader.
func TestStopFinishesWhatIsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(500, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		w.fail = func(string) error { <-time.After(time.Second); return nil }
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(1500 * time.Millisecond)
		for name := range w.copies() {
			w.c.queue.Add(name)
		}
		before, began := w.written(), time.Now()
		stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("stopping took %s", took)
		}
		if n := w.written() - before; n != 16 {
			t.Errorf("%d writes were completed after the stop, want the 16 in progress", n)
		}
	})
}

// The same holds if the context ends with a cause, as that of a signal does.
func TestStopWithACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 1)
		w.writes(func(string) error { <-time.After(time.Second); return nil })
		stop := w.startWithCause(logr.Discard(), interceptor.Funcs{})
		defer stop(nil)
		controllertest.Pass(500 * time.Millisecond)
		stop(errors.New("terminated signal received"))
		n := w.written()
		controllertest.Pass(time.Second) // for a write that was abandoned
		if err := w.hasEnded(); err != nil || n != 1 {
			t.Errorf("Start has returned %v after %d writes, want the one in progress to be completed", err, n)
		}
	})
}

func TestStopLimitsWorkInProgress(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	synctest.Test(t, func(*testing.T) {
		work, done := drainContext(context.WithoutCancel(ctx))
		defer done()
		if deadline, _ := work.Deadline(); time.Until(deadline) != writeTimeout {
			t.Errorf("a write may take %s, want %s", time.Until(deadline), writeTimeout)
		}
	})
	cancel()
	synctest.Test(t, func(*testing.T) {
		stopping, cancel := context.WithCancel(context.Background())
		work, done := drainContext(stopping)
		defer done()
		cancel()
		began := time.Now()
		<-work.Done()
		if took := time.Since(began); took != stopTimeout {
			t.Errorf("work in progress had %s, want %s", took, stopTimeout)
		}
	})
}

// The liveness check fails if no worker processes the queue. It succeeds in a replica that
// is not the leader, which has no workers.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{}, controllertest.Client(t, interceptor.Funcs{}), newTestMetrics())
		defer c.queue.ShutDown()
		alive := func(leading bool) error {
			c.leading.Store(leading)
			err := c.Live()
			for range int(5 * time.Minute / (10 * time.Second)) {
				controllertest.Pass(10 * time.Second)
				if err = c.Live(); err != nil {
					break
				}
			}
			return err
		}
		if err := alive(false); err != nil {
			t.Errorf("a replica that is not the leader is not alive: %v", err)
		}
		if alive(true) == nil {
			t.Error("alive although no worker processes the queue")
		}
		go c.work(t.Context(), &nodequeue.Worker{})
		controllertest.Pass(time.Second)
		if err := alive(true); err != nil {
			t.Errorf("not alive although a worker processes the queue: %v", err)
		}
	})
}

// A standby is ready, and does not queue nodes.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(10, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		w.c = New(Options{}, controllertest.Client(t, interceptor.Funcs{}), newTestMetrics())
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
		if w.c.queue.Len() != 0 || !w.c.resync.IsIdle() {
			t.Error("a standby has queued nodes")
		}
	})
}

// While thousands of nodes are reconciled because a gate has changed, each of them for a
// second, a node whose label is added is opened by the next free worker.
func TestNodeOpensDuringAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(5000, func(_ int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.mu.Lock()
		w.fail = func(string) error { <-time.After(time.Second); return nil }
		w.mu.Unlock()
		edited := controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.Taint.Value = "edited" })
		edited.Generation++
		w.setGates(true, edited)
		controllertest.Pass(2500 * time.Millisecond)
		before := w.written()
		w.change("n4999", func(n *gate.Node) { n.Labels["fit"] = "" })
		began := time.Now()
		for !slices.Contains(w.writesFrom(before), "n4999") {
			controllertest.Pass(100 * time.Millisecond)
			if waited := time.Since(began); waited > time.Minute {
				t.Fatalf("not opened within %s", waited)
			}
		}
		if waited := time.Since(began); waited > 2*time.Second+200*time.Millisecond {
			t.Errorf("opened after %s, want two seconds: until a worker is free, and its write", waited)
		}
		if left := 5000 - w.written(); left < 4000 {
			t.Errorf("only %d nodes were waiting meanwhile, want thousands", left)
		}
	})
}

// A node whose write has failed is reported as writable only after a write has succeeded, not
// while it is unknown or if only another gate could be written. Until then, the backoff continues.
func TestWritableAgainOnlyAfterAWrite(t *testing.T) {
	for name, c := range map[string]struct {
		writer func(*world) write.Applier
		then   func(*world)
		failed string
	}{
		"nodes are listed again": {func(w *world) write.Applier {
			w.fail = func(string) error { return write.ErrUnanswered }
			return w
		}, func(w *world) { w.setUnsynced(true) }, "cannot write node"},
		"only another gate can be written": {func(w *world) write.Applier {
			return &denyingWriter{world: w, deniesKey: controllertest.TaintKey}
		}, func(w *world) { w.change("n0000", func(n *gate.Node) { n.Labels["well"] = "" }) }, "node write denied"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaitingWorld(t, func(n *gate.Node) {
					n.Records["other"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, otherKey)
					n.Taints = append(n.Taints, corev1.Taint{Key: otherKey, Effect: corev1.TaintEffectNoSchedule})
				})
				w.writer = c.writer(w)
				var log controllertest.LogLines
				defer w.start(log.Logger(), interceptor.Funcs{})()
				controllertest.Pass(time.Second)
				c.then(w)
				controllertest.Pass(30 * time.Second)
				if again, failed := log.Count("can be written again"), log.Count(c.failed); again != 0 || failed != 1 {
					t.Errorf("the node is reported %d times as writable, and %d times as failed, want once as failed; log:\n%s", again, failed, strings.Join(log.All(), "\n"))
				}
			})
		})
	}
}

// The failures of a node that no longer has to be written are over, also if a gate is in dry run:
// the next one is logged again.
func TestFailuresEndWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(s *v1alpha1.NodeGateSpec) { s.OpenWhen[0].Label.Key = "fit" }
		dryRun := func(s *v1alpha1.NodeGateSpec) { s.Mode, s.Taint.Key = v1alpha1.ModeDryRun, otherKey }
		w := newWorld(t, controllertest.Gate("gate", waits), controllertest.Gate("dry", dryRun))
		w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		w.writer = &denyingWriter{world: w, deniesKey: controllertest.TaintKey}
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		for range 2 {
			w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
			controllertest.Pass(10 * time.Second)
			w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
			controllertest.Pass(2 * time.Minute)
		}
		if failed, again := log.Count("node write denied"), log.Count("can be written again"); failed != 2 || again != 0 {
			t.Errorf("%d failures and %d recoveries are logged, want two and none; log:\n%s", failed, again, strings.Join(log.All(), "\n"))
		}
	})
}
