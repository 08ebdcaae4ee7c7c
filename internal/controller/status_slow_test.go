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
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// Metrics of a gate do not wait until the API server has answered writes of the status of many others. A
// status that can be written gets its turn, however many cannot.
func TestMetricsWhileStatusWritesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*v1alpha1.NodeGate
		for i := range 20 {
			gates = append(gates, controllertest.Gate(fmt.Sprintf("gate%02d", i)))
		}
		last := gates[len(gates)-1].Name
		var hang, answers atomic.Bool
		funcs := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if hang.Load() && (!answers.Load() || obj.GetName() != last) {
				<-ctx.Done()
				return ctx.Err()
			}
			return c.SubResource(sub).Patch(ctx, obj, p, o...)
		}}
		w := newWorld(t, gates...)
		w.add(5, func(_ int, n *gate.Node) {
			delete(n.Labels, "fit")
			for _, ng := range gates {
				isClosed(n, ng.Name, v1alpha1.ReasonBirth)
			}
		})
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(time.Minute)
		if closed := w.stored(last).Status.Nodes.Closed; closed != 5 {
			t.Fatalf("gate %s is closed on %d nodes, want 5", last, closed)
		}
		hang.Store(true)
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
		}
		controllertest.Pass(15 * time.Second)
		for state, want := range map[string]float64{"open": 5, "closed": 0} {
			if got := testutil.ToFloat64(w.c.metrics.Nodes.WithLabelValues(last, state)); got != want {
				t.Errorf("%v nodes are %s in metrics, want %v", got, state, want)
			}
		}
		controllertest.Pass(5 * time.Minute) // all have failed
		answers.Store(true)
		controllertest.Pass(statusRetryMax + time.Duration(len(gates))*(statusTimeout+statusInterval))
		if open := w.stored(last).Status.Nodes.Open; open != 5 {
			t.Errorf("the status of gate %s has %d open nodes, want 5", last, open)
		}
	})
}
