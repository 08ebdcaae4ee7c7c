// SPDX-License-Identifier: Apache-2.0

package timeline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/timeline"
)

// The last signal is known only if the times of all signals are known. The gate waited for
// it alone after all others held.
func TestLast(t *testing.T) {
	held := func(seconds ...int) (signals []timeline.Signal) {
		for _, s := range seconds {
			m := timeline.Moment{At: at(s)}
			if s == 0 {
				m = timeline.Moment{Doubt: timeline.Untold}
			}
			signals = append(signals, timeline.Signal{Held: m})
		}
		return signals
	}
	ready := timeline.Moment{At: at(40)}
	for _, c := range []struct {
		ready   timeline.Moment
		signals []timeline.Signal
		last    int
		alone   time.Duration
	}{
		{ready, held(60, 90), 1, 30 * time.Second},
		{ready, held(90, 60), 0, 30 * time.Second},
		{ready, held(90, 70, 60), 0, 20 * time.Second},
		{ready, held(90, 20), 0, 50 * time.Second},
		{ready, held(30, 20), 0, 0},
		{timeline.Moment{Doubt: timeline.Pending}, held(30), 0, 30 * time.Second},
		{ready, held(90, 0), -1, 0},
		{ready, nil, -1, 0},
	} {
		l := timeline.History{Created: born, Ready: c.ready}
		g := timeline.Gate{Signals: c.signals}
		if last, alone := g.Last(&l); last != c.last || alone != c.alone {
			t.Errorf("%v: last signal %d, alone for %s; want %d, %s", c.signals, last, alone, c.last, c.alone)
		}
	}
}

// A closed openWhen gate waits for the signals that do not hold, and a closeWhen gate for those that
// are unknown or, if all hold, for all of them. If one does not hold, something else keeps it closed.
// A signal that could not be read is not known to be awaited.
func TestAwaited(t *testing.T) {
	signals := []timeline.Signal{{State: "Holds"}, {State: "Unknown"}, {State: "NotYet"}}
	unread := []timeline.Signal{{State: "Unknown", Held: timeline.Moment{Doubt: timeline.Unread}}, {State: "NotYet"}}
	for _, c := range []struct {
		gate timeline.Gate
		want []int
	}{
		{timeline.Gate{State: v1alpha1.StateClosed, Signals: signals}, []int{1, 2}},
		{timeline.Gate{State: v1alpha1.StateClosed, Signals: signals[:1]}, nil},
		{timeline.Gate{State: v1alpha1.StateClosed, CloseWhen: true, Signals: signals}, nil},
		{timeline.Gate{State: v1alpha1.StateClosed, CloseWhen: true, Signals: signals[:2]}, []int{1}},
		{timeline.Gate{State: v1alpha1.StateClosed, CloseWhen: true, Signals: signals[:1]}, []int{0}},
		{timeline.Gate{State: v1alpha1.StateClosed, CloseWhen: true}, nil},
		{timeline.Gate{State: v1alpha1.StateOpen, Signals: signals}, nil},
		{timeline.Gate{State: v1alpha1.StateClosed, Signals: signals, IgnoresSignals: true}, nil},
		{timeline.Gate{State: v1alpha1.StateClosed, Signals: unread}, []int{1}},
		{timeline.Gate{State: v1alpha1.StateClosed, CloseWhen: true, Signals: unread[:1]}, nil},
	} {
		if got := c.gate.Awaited(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: Awaited returned %d, want %d", c.gate, got, c.want)
		}
	}
	if g := (&timeline.Gate{State: v1alpha1.StateClosed, Signals: unread}); !slices.Equal(g.MayAwait(), []int{0}) {
		t.Errorf("MayAwait returned %d, want the unread signal", g.MayAwait())
	}
}

// A gate with the effect PreferNoSchedule holds no node, also not since its creation.
func TestSoftGateHoldsNothing(t *testing.T) {
	soft := timeline.Gate{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Soft: true, Closed: timeline.Moment{At: born}}
	again := timeline.Gate{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRebooted, Closed: timeline.Moment{At: at(3000)}}
	l := timeline.History{Created: born, Held: true, Gates: []timeline.Gate{soft, again}}
	if l.HeldSinceCreation() || !l.HeldSince().Equal(at(3000)) {
		t.Errorf("held since %s, since its creation: %t; want 3000 s after it", l.HeldSince(), l.HeldSinceCreation())
	}
	l.Gates[0].Soft = false
	if !l.HeldSinceCreation() || !l.HeldSince().Equal(born) {
		t.Errorf("with the effect NoSchedule, held since %s, since its creation: %t", l.HeldSince(), l.HeldSinceCreation())
	}
}
