// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// The soak is waited for although no event tells of its end, and said to be.
// Where the API tells since when a signal has held, a controller that is replaced
// half way changes nothing but the allowance for clocks; where it does not, the
// wait begins again.
func TestOpenAfterIsWaitedFor(t *testing.T) {
	probed := v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Probed", Status: "True"}}
	for name, c := range map[string]struct {
		signal v1alpha1.SignalSource
		holds  func(*gate.Node)
		opens  time.Duration // after the signal came to hold
	}{
		"the API tells the time, by a clock that is slow": {probed, func(n *gate.Node) {
			n.Conditions = append(n.Conditions[:1:1], gate.Condition{Type: "Probed", Status: "True", Transition: time.Now().Add(-4 * time.Second)})
		}, time.Hour - 4*time.Second + gate.HeartbeatSkew},
		"by one that is fast": {probed, func(n *gate.Node) {
			n.Conditions = append(n.Conditions[:1:1], gate.Condition{Type: "Probed", Status: "True", Transition: time.Now().Add(4 * time.Second)})
		}, time.Hour + 4*time.Second + gate.HeartbeatSkew},
		"it does not": {v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}, func(n *gate.Node) {
			n.Labels = map[string]string{"fit": ""}
		}, 90 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate", func(spec *v1alpha1.NodeGateSpec) {
					spec.OpenWhen[0].SignalSource = c.signal
					spec.Timing.OpenAfterSeconds = 3600
				}))
				w.add(1, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonRegression) })
				stop := w.start(logr.Discard(), interceptor.Funcs{})
				controllertest.Pass(time.Minute)
				w.change("n0000", c.holds)
				began := time.Now()
				controllertest.Pass(20 * time.Minute)
				waiting := w.stored("gate").Status.Waiting
				until := began.Add(time.Hour).UTC().Format(time.RFC3339)
				if len(waiting) != 1 || waiting[0].Reason != string(v1alpha1.ReadingOpenAfter) || !strings.Contains(waiting[0].Message, until) {
					t.Errorf("waits for %+v, want until %s", waiting, until)
				}
				stop()
				controllertest.Pass(10 * time.Minute)
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(time.Until(began.Add(c.opens - 2*time.Second)))
				if w.closed() != 1 || w.written() != 0 {
					t.Error("it opened too soon")
				}
				controllertest.Pass(4 * time.Second)
				if w.closed() != 0 || w.written() != 1 {
					t.Errorf("%d closed after %d writes, in time", w.closed(), w.written())
				}
			})
		})
	}
}

// A heartbeat that becomes too old ends a soak by the passing of time alone, though
// nothing is heard of the node, and the controller is replaced.
func TestStaleHeartbeatRestartsOpenAfter(t *testing.T) {
	for name, beats := range map[string]bool{"beating": true, "fallen silent": false} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replaced %t", name, replaced), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testStaleSoak(t, beats, replaced) })
			})
		}
	}
}

func testStaleSoak(t *testing.T, beats, replaced bool) {
	t.Helper()
	w := newWorld(t, controllertest.Gate("gate", probed(func(s *v1alpha1.NodeGateSpec) {
		s.OpenWhen[0].Condition.MaxHeartbeatAgeSeconds = ptr.To[int32](60)
		s.Timing.OpenAfterSeconds = 600
	})))
	w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonRegression) })
	stop := w.start(logr.Discard(), interceptor.Funcs{})
	defer func() { stop() }()
	controllertest.Pass(10 * time.Second)
	beat := func(n *gate.Node) { n.Conditions[0].Heartbeat = time.Now() }
	w.change("n0000", func(n *gate.Node) { is("Probed", "True")(w, n, time.Now()); beat(n) })
	for minute := range 12 {
		if minute == 3 && replaced {
			stop()
			stop = w.start(logr.Discard(), interceptor.Funcs{})
		}
		if beats {
			w.change("n0000", beat)
		}
		controllertest.Pass(time.Minute)
	}
	if isOpen := w.closed() == 0; isOpen != beats {
		t.Errorf("two minutes after the soak would be over, the gate is open: %t", isOpen)
	}
}
