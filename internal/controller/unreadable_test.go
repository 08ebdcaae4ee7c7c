// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
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
			for name, n := range w.nodes {
				if len(n.Taints) != 1 || n.Taints[0].Key != controllertest.TaintKey {
					t.Errorf("%s: node %s has taints %v", why, name, n.Taints)
				}
			}
			if r, err := gate.ParseRecord(w.nodes["n0000"].Records["fine"]); err != nil || r.State != v1alpha1.StateOpen {
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
