// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// openAfterSeconds pass without an event, and the status reports the wait. If the
// controller is replaced meanwhile, the wait continues, plus the allowance for clocks, if
// the API reports since when the signal has held. Otherwise, the wait restarts.
func TestOpenAfterIsWaitedFor(t *testing.T) {
	probed := v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Probed", Status: "True"}}
	for name, c := range map[string]struct {
		signal v1alpha1.SignalSource
		holds  func(*gate.Node)
		opens  time.Duration // after the signal began to hold
	}{
		"the API reports the time, by a slow clock": {probed, func(n *gate.Node) {
			n.Conditions = append(n.Conditions[:1:1], gate.Condition{Type: "Probed", Status: "True", Transition: time.Now().Add(-4 * time.Second)})
		}, time.Hour - 4*time.Second + gate.HeartbeatSkew},
		"by a fast clock": {probed, func(n *gate.Node) {
			n.Conditions = append(n.Conditions[:1:1], gate.Condition{Type: "Probed", Status: "True", Transition: time.Now().Add(4 * time.Second)})
		}, time.Hour + 4*time.Second + gate.HeartbeatSkew},
		"it does not report it": {v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}, func(n *gate.Node) {
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
					t.Errorf("waiting: %+v, want until %s", waiting, until)
				}
				stop()
				controllertest.Pass(10 * time.Minute)
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(time.Until(began.Add(c.opens - 2*time.Second)))
				if w.closed() != 1 || w.written() != 0 {
					t.Error("it opened too early")
				}
				controllertest.Pass(4 * time.Second)
				if w.closed() != 0 || w.written() != 1 {
					t.Errorf("when the time has passed, %d nodes are closed after %d writes, want none after 1", w.closed(), w.written())
				}
			})
		})
	}
}

// Waits belong to the signals of a gate: they start again if the signals are edited or the gate
// is created again, but not if something else is edited.
func TestWaitsOfAnEditedGate(t *testing.T) {
	byB := func(ng *v1alpha1.NodeGate) { ng.Generation, ng.Spec.OpenWhen[0].SignalSource = 2, hasLabel("b") }
	for name, c := range map[string]struct {
		edit  func(*v1alpha1.NodeGate)
		waits bool
	}{
		"its signals":   {byB, true},
		"created again": {func(ng *v1alpha1.NodeGate) { byB(ng); ng.UID, ng.Generation = "other", 1 }, true},
		"its budget": {func(ng *v1alpha1.NodeGate) {
			ng.Generation, ng.Spec.Budget.MaxReclosed = 2, new(intstr.FromString("100%"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testEditedWait(t, c.edit, c.waits) })
		})
	}
}

func hasLabel(key string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: key}}
}

// testEditedWait edits two gates a minute before they open or close.
func testEditedWait(t *testing.T, edit func(*v1alpha1.NodeGate), waits bool) {
	t.Helper()
	opens := controllertest.Gate("opens", func(spec *v1alpha1.NodeGateSpec) {
		spec.OpenWhen[0].SignalSource = hasLabel("a")
		spec.Timing.OpenAfterSeconds = 3600
	})
	closes := controllertest.Gate("closes", func(spec *v1alpha1.NodeGateSpec) {
		spec.Taint.Key = "example.com/closes"
		spec.OpenWhen[0].SignalSource = hasLabel("not")
		spec.ReclosePolicy, spec.Timing.CloseAfterSeconds = v1alpha1.RecloseOnRegression, new(int32(3600))
	})
	w := newWorld(t, opens, closes)
	w.add(1, func(_ int, n *gate.Node) {
		n.Labels["not"] = ""
		isClosed(n, "opens", v1alpha1.ReasonRegression)
		isOpen(n, "closes")
	})
	defer w.start(logr.Discard(), interceptor.Funcs{})()
	controllertest.Pass(time.Minute)
	w.change("n0000", func(n *gate.Node) { n.Labels["a"] = ""; delete(n.Labels, "not") })
	controllertest.Pass(59 * time.Minute)
	w.change("n0000", func(n *gate.Node) { n.Labels["b"] = "" }) // opens reads it from now on
	edited := []*v1alpha1.NodeGate{opens.DeepCopy(), closes.DeepCopy()}
	edit(edited[0])
	edit(edited[1])
	if edited[1].Spec.OpenWhen[0].Label.Key == "b" { // so that it does not hold
		edited[1].Spec.OpenWhen[0].Label.Key = "neither"
	}
	w.setGates(true, edited...)
	controllertest.Pass(2 * time.Minute)
	for name, before := range map[string]string{"opens": v1alpha1.StateClosed, "closes": v1alpha1.StateOpen} {
		r, err := gate.ParseRecord(w.node("n0000").Records[name])
		if waited := r.State == before; err != nil || waited != waits {
			t.Errorf("an hour after the first signals changed, gate %s is %s (%v), and waits: %t, want %t", name, r.State, err, waited, waits)
		}
	}
}

// A heartbeat that becomes too old restarts openAfterSeconds, although no event reports
// it, and even if the controller is replaced.
func TestStaleHeartbeatRestartsOpenAfter(t *testing.T) {
	for name, beats := range map[string]bool{"heartbeats": true, "no heartbeats": false} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replaced %t", name, replaced), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testStaleSoak(t, beats, replaced) })
			})
		}
	}
}

// A checker reports once, and again after 20 minutes, in which its heartbeat was too old.
func TestHeartbeatReturnsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", probed(func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen[0].Condition.MaxHeartbeatAgeSeconds = new(int32(60))
			s.Timing.OpenAfterSeconds = 600
		})))
		w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonRegression) })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		beat := func(n *gate.Node) { n.Conditions[0].Heartbeat = time.Now() }
		w.change("n0000", func(n *gate.Node) { is("Probed", "True")(w, n, time.Now()); beat(n) })
		controllertest.Pass(20 * time.Minute)
		w.change("n0000", beat)
		controllertest.Pass(50 * time.Second)
		if w.closed() != 1 {
			t.Error("it opened at the first heartbeat after 20 minutes")
		}
		for range 10 {
			w.change("n0000", beat)
			controllertest.Pass(time.Minute)
		}
		if w.closed() != 0 {
			t.Error("it is closed after ten minutes of heartbeats")
		}
	})
}

func testStaleSoak(t *testing.T, beats, replaced bool) {
	t.Helper()
	w := newWorld(t, controllertest.Gate("gate", probed(func(s *v1alpha1.NodeGateSpec) {
		s.OpenWhen[0].Condition.MaxHeartbeatAgeSeconds = new(int32(60))
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
		t.Errorf("two minutes after openAfterSeconds, the gate is open: %t, want %t", isOpen, beats)
	}
}
