// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// A gate that cannot be read keeps its nodes closed, even if another gate with the same
// taint opens, and new nodes are still closed. Its deletion opens it.
func TestGateThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fine, odd := controllertest.Gate("fine"), controllertest.Gate("odd")
		w := newWorld(t, fine, odd)
		w.add(3, func(i int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "fine", v1alpha1.ReasonBirth)
			isClosed(n, "odd", v1alpha1.ReasonBirth)
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)

		for why, known := range map[string]v1alpha1.Taint{"json: the timing": odd.Spec.Taint, "json: the taint": {}} {
			unread := &v1alpha1.NodeGate{ObjectMeta: odd.ObjectMeta, ReadError: why} // the definition was edited, not the gate
			unread.Spec.Taint = known
			w.setGates(true, fine, unread)
			controllertest.Pass(10 * time.Second)
			w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
			controllertest.Pass(10 * time.Second)
			for name, n := range w.copies() {
				if len(n.Taints) != 1 || n.Taints[0].Key != controllertest.TaintKey {
					t.Errorf("%s: node %s has taints %v", why, name, n.Taints)
				}
			}
			if r, err := gate.ParseRecord(w.node("n0000").Records["fine"]); err != nil || r.State != v1alpha1.StateOpen {
				t.Errorf("the other gate's record is %+v, %v", r, err)
			}
			w.wantParameters("while it cannot be read", "map[fine:"+controllertest.TaintKey+" odd:"+controllertest.TaintKey+"]")
			c := meta.FindStatusCondition(w.stored("odd").Status.Conditions, v1alpha1.ConditionAccepted)
			if c == nil || c.Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(c.Message, why+". Until this is corrected, the gate neither opens nor closes") {
				t.Errorf("condition Accepted: %+v", c)
			}
		}
		w.setGates(true, fine)
		controllertest.Pass(10 * time.Second)
		if n := w.closed(); n != 2 {
			t.Errorf("%d nodes are closed after the gate was deleted, want the 2 that are not fit", n)
		}
		w.wantParameters("with the gate deleted", "map[fine:"+controllertest.TaintKey+"]")
	})
}

// The mode of a gate that cannot be read is not known. Its last mode remains, and a change to
// Enforce is not reported.
func TestModeOfAGateThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := controllertest.Gate("odd", inMode(v1alpha1.ModePaused))
		w := newWorld(t, odd)
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		unread := &v1alpha1.NodeGate{ObjectMeta: odd.ObjectMeta, ReadError: "json: the timing"}
		unread.Spec.Taint = odd.Spec.Taint
		for _, ng := range []*v1alpha1.NodeGate{unread, odd} {
			w.setGates(true, ng)
			controllertest.Pass(10 * time.Second)
			modes := w.c.metrics.Modes
			if v := testutil.ToFloat64(modes.WithLabelValues("odd", "Paused")); v != 1 || testutil.CollectAndCount(modes) != 1 {
				t.Errorf("read error %q: Paused is %v of %d modes, want 1 of 1", ng.ReadError, v, testutil.CollectAndCount(modes))
			}
			if n, changes := log.Count(`"gate mode"`), log.Count(`"gate mode changed"`); n != 1 || changes != 0 {
				t.Errorf("read error %q: the mode is logged %d times, want 1, and %d changes, want none", ng.ReadError, n, changes)
			}
		}
	})
}

// A gate that is not accepted or cannot be read does not close at birth as far as nodegate
// can tell, so there is nothing to prove, and no series that would fire NodegateBirthsOpen.
// While an edited gate is being compiled, its series remain.
func TestSeriesOfBirthsOfGatesNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(name string) func(*v1alpha1.NodeGateSpec) {
			return func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/" + name }
		}
		fine, odd := controllertest.Gate("fine"), controllertest.Gate("odd", key("odd"))
		w := newWorld(t, fine, odd, controllertest.Gate("refused", key("refused")))
		w.allowedKeys = []string{controllertest.TaintKey, "test.nodegate.dev/odd"}
		through := make(chan struct{})
		w.compile = func(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
			if ng.Generation == 2 {
				<-through
			}
			return signal.Compile(ng, source)
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		wantProved := func(when string, gates ...string) {
			t.Helper()
			if n := testutil.CollectAndCount(w.c.metrics.Proved); n != len(gates) {
				t.Errorf("%s: %d series, want those of %v", when, n, gates)
			}
			for _, name := range gates {
				if got := testutil.ToFloat64(w.c.metrics.Proved.WithLabelValues(name)); got != 1 {
					t.Errorf("%s: the series of gate %s is %v, want 1", when, name, got)
				}
			}
		}
		controllertest.Pass(10 * time.Second)
		wantProved("with a gate that is not accepted", "fine", "odd")

		edited := expressionGate("fine", 100)
		edited.Generation = 2
		unread := &v1alpha1.NodeGate{ObjectMeta: odd.ObjectMeta, ReadError: "json: the timing"}
		unread.Spec.Taint = odd.Spec.Taint
		w.setGates(true, edited, unread)
		controllertest.Pass(10 * time.Second)
		if !w.c.set.Load().Compiling("fine") {
			t.Error("the edited gate is compiled already")
		}
		wantProved("with an unreadable gate, and one that is being compiled", "fine")
		close(through)
		controllertest.Pass(10 * time.Second)
		wantProved("after it was compiled", "fine")
	})
}
