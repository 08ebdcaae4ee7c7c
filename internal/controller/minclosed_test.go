// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// A gate opens when minClosedSeconds have passed, without an event, and even if the
// controller was replaced meanwhile.
func TestMinClosedIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(spec *v1alpha1.NodeGateSpec) { spec.Timing.MinClosedSeconds = 3600 }))
		w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonRegression) }) // ten minutes ago
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(20 * time.Minute)
		waiting := w.stored("gate").Status.Waiting
		if len(waiting) != 1 || waiting[0].Reason != string(v1alpha1.ReadingMinClosed) || w.written() != 0 {
			t.Errorf("waiting: %+v after %d writes, want minClosedSeconds and no write", waiting, w.written())
		}
		stop()
		controllertest.Pass(10 * time.Minute)
		stop = w.start(logr.Discard(), interceptor.Funcs{})
		defer stop()
		controllertest.Pass(20*time.Minute - 2*time.Second)
		if w.closed() != 1 {
			t.Error("it opened too early")
		}
		controllertest.Pass(4 * time.Second)
		if w.closed() != 0 || w.written() != 1 {
			t.Errorf("an hour after the closing, %d nodes are closed after %d writes, want none after 1", w.closed(), w.written())
		}
	})
}
