// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
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

// Istio's controller changed its cached Node before the write: after one conflict it found
// the taint in the cache, and never wrote it. It retried 50 times with the rejected object,
// and then gave up. nodegate decides again for every attempt, with the current facts,
// until one succeeds.
func TestSeedIstioFailedWriteIsNotBelieved(t *testing.T) {
	for _, failure := range []error{write.ErrConflict, context.DeadlineExceeded} {
		t.Run(failure.Error(), func(t *testing.T) {
			const failures = 60
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate"))
				w.add(1, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isOpen(n, "gate") })
				var tries atomic.Int32
				w.fail = func(name string) error {
					if tries.Add(1) > failures {
						return nil
					}
					// Another writer was faster, each time with another taint. There is no event.
					w.mu.Lock()
					defer w.mu.Unlock()
					n := w.nodes[name]
					n.Taints = []corev1.Taint{{Key: fmt.Sprintf("foreign-%d", tries.Load()), Effect: corev1.TaintEffectNoSchedule}}
					w.nodes[name] = n
					return fmt.Errorf("patching: %w", failure)
				}
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(time.Hour) // with a retry per resync, it would take ten hours
				w.mu.Lock()
				defer w.mu.Unlock()
				want := fmt.Sprintf("[{foreign-%d  NoSchedule <nil>} {%s  NoSchedule <nil>}]", failures, controllertest.TaintKey)
				if got := fmt.Sprint(w.nodes["n0000"].Taints); got != want || len(w.writes) != 1 {
					t.Errorf("after %d attempts and %d writes, the node has taints %s, want %s", tries.Load(), len(w.writes), got, want)
				}
			})
		})
	}
}

// Tainter wrote one node after the other: one hanging write delayed all others.
func TestSeedTainterSlowWriteDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fleet = 100
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(fleet, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		hangs := make(chan struct{})
		w.fail = func(name string) error {
			if name == "n0000" {
				<-hangs
			}
			return nil
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(15 * time.Second)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed, want only the one whose write hangs", n)
		}
		close(hangs)
		controllertest.Pass(time.Second)
		if n := w.closed(); n != 0 {
			t.Errorf("%d nodes are still closed", n)
		}
	})
}
