// SPDX-License-Identifier: Apache-2.0

package controller

import (
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

// A node on which any gate has something left to do is not settled, and is reconciled
// fully, even if the change concerns another gate.
func TestUnsettledNodesAreReconciledFully(t *testing.T) {
	edit := func(change func(*gate.Node)) func(*world) {
		return func(w *world) { w.edit("n0000", gate.Everything(), change) }
	}
	noBudget := func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = new(intstr.FromInt32(0)) }
	for name, c := range map[string]struct {
		// disk changes the gate whose condition does not change.
		disk func(*v1alpha1.NodeGateSpec)
		// before changes the node a minute before the measurement.
		before func(*world)
		full   bool
	}{
		"all is settled":           {func(*v1alpha1.NodeGateSpec) {}, func(*world) {}, false},
		"a closed gate is settled": {func(*v1alpha1.NodeGateSpec) {}, edit(setCondition(1, "False")), false},
		"a gate waits for budget":  {noBudget, edit(setCondition(1, "False")), true},
		"a gate is overridden":     {func(*v1alpha1.NodeGateSpec) {}, edit(overrideFor(time.Hour, "disk", v1alpha1.StateClosed)), true},
		"an unlisted gate may exist": {func(*v1alpha1.NodeGateSpec) {}, func(w *world) {
			w.setGates(false, w.gates...)
			controllertest.Pass(10 * time.Second)
			edit(func(n *gate.Node) { isClosed(n, "unlisted", v1alpha1.ReasonBirth) })(w)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, conditionGate("disk", "Disk", c.disk), conditionGate("memory", "Memory"))
				w.writer = notifyingWriter{w}
				w.add(1, func(_ int, n *gate.Node) {
					for _, name := range []string{"Disk", "Memory"} {
						n.Conditions = append(n.Conditions, gate.Condition{Type: name, Status: "True"})
						isOpen(n, strings.ToLower(name))
					}
				})
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(10 * time.Second)
				c.before(w)
				controllertest.Pass(time.Minute)
				full, reads := w.fullReadCount(), w.readCount()
				w.edit("n0000", flipOf("Memory"), setCondition(2, "False"))
				controllertest.Pass(time.Second)
				if got := w.fullReadCount() > full; got != c.full || w.readCount() == reads {
					t.Errorf("facts were read %d times, all facts %d times; want a full reconcile: %t", w.readCount()-reads, w.fullReadCount()-full, c.full)
				}
			})
		})
	}
}
