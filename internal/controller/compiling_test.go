// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// expressionGate returns a gate that opens if an expression is true. The expression is
// longer for a larger i.
func expressionGate(name string, i int) *v1alpha1.NodeGate {
	return controllertest.Gate(name, opensBy(fmt.Sprintf(`labels[?"fit"].orValue("none") == "" && %d < %d`, i, i+1)+strings.Repeat(" ", i)))
}

// ready returns the status and the reason of a gate's condition Ready.
func (w *world) ready(name string) string {
	c := meta.FindStatusCondition(w.stored(name).Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return "none"
	}
	return c.Reason + ": " + c.Message
}

const compilingMessage = "Compiling: its expressions are being compiled; until then, it neither opens nor closes on existing nodes, " +
	"and new nodes are still closed at creation if they were before"

// After a restart, eight gates whose expressions take long to compile do not delay other
// gates. What they closed stays closed. Short expressions are compiled first.
func TestCompilingKeepsNoOtherGateWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := controllertest.Gate("plain", func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/plain" })
		gates := []*v1alpha1.NodeGate{plain}
		for i := range 8 {
			gates = append(gates, expressionGate(fmt.Sprintf("slow-%d", i), 10+i))
		}
		w := newWorld(t, append(gates, expressionGate("quick", 0))...)
		through := make(chan struct{})
		var mu sync.Mutex
		var order []string
		w.compile = func(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
			mu.Lock()
			order = append(order, ng.Name)
			mu.Unlock()
			if strings.HasPrefix(ng.Name, "slow") {
				<-through
			}
			return signal.Compile(ng, source)
		}
		w.add(1, func(_ int, n *gate.Node) {
			isClosed(n, "plain", v1alpha1.ReasonBirth)
			isClosed(n, "quick", v1alpha1.ReasonBirth)
			isClosed(n, "slow-3", v1alpha1.ReasonBirth)
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		mu.Lock()
		if got := strings.Join(order, " "); got != "plain quick slow-0" {
			t.Errorf("compiled %s, want plain, quick and slow-0", got)
		}
		mu.Unlock()
		state := func(name string) string {
			r, err := gate.ParseRecord(w.node("n0000").Records[name])
			if err != nil {
				t.Fatal(err)
			}
			return r.State
		}
		for name, want := range map[string]string{"plain": v1alpha1.StateOpen, "quick": v1alpha1.StateOpen, "slow-3": v1alpha1.StateClosed} {
			if got := state(name); got != want {
				t.Errorf("%s is %s on the node, want %s", name, got, want)
			}
		}
		if w.closed() != 1 {
			t.Error("the taint was removed although one of its gates is still closed")
		}
		if got := w.ready("slow-3"); got != compilingMessage {
			t.Errorf("slow-3: %s", got)
		}
		if got := w.ready("plain"); strings.HasPrefix(got, "Compiling") {
			t.Errorf("plain: %s", got)
		}
		if c := meta.FindStatusCondition(w.stored("slow-3").Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
			t.Errorf("Accepted is set before the gate is compiled: %+v", c)
		}
		close(through)
		controllertest.Pass(10 * time.Second)
		if w.closed() != 0 || state("slow-3") != v1alpha1.StateOpen || strings.HasPrefix(w.ready("slow-3"), "Compiling") {
			t.Errorf("after it was compiled, slow-3 is %s: %s", state("slow-3"), w.ready("slow-3"))
		}
	})
}

// An edited gate continues to close new nodes while its new expression is being compiled.
// With the same expression, it is not compiled in the background.
func TestEditedGateIsCompiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng, plain := expressionGate("gate", 1), controllertest.Gate("plain")
		w := newWorld(t, ng)
		var compiled atomic.Int32
		blocked := make(chan struct{})
		w.compile = func(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
			compiled.Add(1)
			if ng.Generation == 3 {
				<-blocked
			}
			return signal.Compile(ng, source)
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		w.wantParameters("at first", "map[gate:"+controllertest.TaintKey+"]")

		same := ng.DeepCopy()
		same.Generation, same.Spec.Timing.MinClosedSeconds = 2, 7
		w.setGates(true, same)
		synctest.Wait() // no time passes
		if set := w.c.set.Load(); set.Compiling("gate") || set.Declared["gate"].Generation != 2 {
			t.Error("a gate whose expression has not changed waits for its compilation")
		}

		edited := expressionGate("gate", 2)
		edited.Generation = 3
		w.setGates(true, edited, plain)
		controllertest.Pass(10 * time.Second)
		if got := w.ready("gate"); got != compilingMessage {
			t.Errorf("the edited gate: %s", got)
		}
		if c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted); c == nil || c.Status != "True" || c.ObservedGeneration == 3 {
			t.Errorf("the previous condition Accepted did not remain: %+v", c)
		}
		w.wantParameters("while it is compiled", "map[gate:"+controllertest.TaintKey+" plain:"+controllertest.TaintKey+"]")

		w.setGates(true, plain) // the gate is deleted meanwhile
		controllertest.Pass(time.Second)
		close(blocked)
		controllertest.Pass(10 * time.Second)
		w.wantParameters("with the gate deleted", "map[plain:"+controllertest.TaintKey+"]")
		if n := compiled.Load(); n != 4 { // the gate three times, and plain
			t.Errorf("%d compilations, want 4", n)
		}
	})
}
