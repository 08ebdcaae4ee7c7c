// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// threeSignals makes a gate wait for two labels and a condition.
func threeSignals(s *v1alpha1.NodeGateSpec) {
	s.OpenWhen = append(s.OpenWhen,
		v1alpha1.Signal{Name: "other", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "other"}}},
		v1alpha1.Signal{Name: "network", SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Network", Status: "True"}}})
}

// signalWait returns the sum and the count of the histogram of waits for a signal.
func (w *world) signalWait(signal string) (sum float64, count uint64) {
	w.t.Helper()
	var out dto.Metric
	if err := w.c.metrics.SignalWait.WithLabelValues("gate", signal).(interface{ Write(*dto.Metric) error }).Write(&out); err != nil {
		w.t.Fatal(err)
	}
	return out.GetHistogram().GetSampleSum(), out.GetHistogram().GetSampleCount()
}

func (w *world) wantWait(t *testing.T, signal string, want time.Duration, times uint64) {
	t.Helper()
	if sum, count := w.signalWait(signal); sum != want.Seconds() || count != times {
		t.Errorf("signal %s: %v s in %d observations, want %s in %d", signal, sum, count, want, times)
	}
}

// The wait for a signal is the time from the closing until the signal began to hold:
// according to the API or, if the API does not report it, as observed.
func TestSignalWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", threeSignals))
		w.add(1, func(i int, n *gate.Node) { unfit(i, n); isClosed(n, "gate", v1alpha1.ReasonBirth) }) // 10 minutes ago
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		label := func(key string) { w.change("n0000", func(n *gate.Node) { n.Labels[key] = "" }) }
		controllertest.Pass(time.Minute)
		label("other")
		controllertest.Pass(30 * time.Second)
		if n := testutil.ToFloat64(w.c.metrics.Waiting.WithLabelValues("gate", "fit")); n != 1 {
			t.Errorf("%v nodes wait for fit", n)
		}
		w.change("n0000", func(n *gate.Node) { delete(n.Labels, "other") }) // restarts the wait
		controllertest.Pass(30 * time.Second)
		label("other")
		controllertest.Pass(time.Minute)
		w.change("n0000", func(n *gate.Node) {
			n.Conditions = append(n.Conditions, gate.Condition{Type: "Network", Status: "True", Transition: time.Now().Add(-150 * time.Second)})
		})
		controllertest.Pass(time.Minute)
		w.wantWait(t, "fit", 0, 0)
		label("fit")
		controllertest.Pass(time.Second)
		if w.closed() != 0 {
			t.Fatal("the node is still closed")
		}
		w.wantWait(t, "fit", 14*time.Minute, 1)
		w.wantWait(t, "other", 12*time.Minute, 1)
		w.wantWait(t, "network", 10*time.Minute+30*time.Second, 1)
		if n := testutil.ToFloat64(w.c.metrics.Waiting.WithLabelValues("gate", "fit")); n != 0 {
			t.Errorf("%v nodes wait for fit", n)
		}
		if w.c.nodes.byName["n0000"].signals != nil {
			t.Error("times of signals are still stored")
		}
	})
}

// A wrong clock makes no wait negative, or longer than the time for which the gate was
// closed. An opening for another reason observes no waits.
func TestSignalWaitsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		transition time.Duration // from the closing
		want       time.Duration
	}{
		"before the closing": {-time.Hour, 0},
		"after the opening":  {time.Hour, 10 * time.Minute},
		"between the two":    {time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate", threeSignals))
				w.add(2, func(i int, n *gate.Node) {
					isClosed(n, "gate", v1alpha1.ReasonBirth)
					n.Labels["other"] = ""
					n.Conditions = append(n.Conditions, gate.Condition{Type: "Network", Status: "True", Transition: time.Now().Add(c.transition - 10*time.Minute)})
					if i == 1 {
						n.Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
					}
				})
				defer w.start(logr.Discard(), allowingAllBut(nil))()
				controllertest.Pass(time.Second)
				if w.closed() != 0 {
					t.Fatal("a node is still closed")
				}
				if sum, n := w.signalWait("network"); n != 1 || sum < c.want.Seconds() || sum > c.want.Seconds()+1 {
					t.Errorf("network: %v s in %d observations, want %s in 1", sum, n, c.want)
				}
				if sum, _ := w.signalWait("fit"); sum < 600 || sum > 601 { // first observed when the controller started
					t.Errorf("fit: %v s, want 600", sum)
				}
			})
		})
	}
}

// The metrics contain the budget of each zone. Those of zones that no longer exist are
// deleted.
func TestBudgetMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		zone := func(name string) func(*gate.Node) {
			return func(n *gate.Node) { n.Labels["topology.kubernetes.io/zone"] = name }
		}
		w.add(10, func(i int, n *gate.Node) { isOpen(n, "gate"); zone("a")(n) })
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		wantBudget := func(used, allowed float64, name string) {
			t.Helper()
			controllertest.Pass(5 * time.Second)
			m := w.c.metrics
			u, a := testutil.ToFloat64(m.Used.WithLabelValues("gate", name)), testutil.ToFloat64(m.Allowed.WithLabelValues("gate", name))
			if n := testutil.CollectAndCount(m.Used); u != used || a != allowed || n != 1 {
				t.Errorf("zone %s uses %v of %v, and there are series of %d zones; want %v of %v, and 1", name, u, a, n, used, allowed)
			}
		}
		wantBudget(0, 2, "a")
		for _, name := range []string{"n0001", "n0002"} {
			w.change(name, func(n *gate.Node) { delete(n.Labels, "fit") })
		}
		wantBudget(2, 2, "a")
		oldest := testutil.ToFloat64(w.c.metrics.Oldest.WithLabelValues("gate"))
		if ago := float64(time.Now().Unix()) - oldest; ago < 4 || ago > 6 {
			t.Errorf("the oldest closing was %v s ago, want 5", ago)
		}
		for _, name := range w.NodeNames() {
			w.change(name, zone("b"))
		}
		wantBudget(2, 2, "b")
	})
}
