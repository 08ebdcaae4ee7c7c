// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// BenchmarkOpening measures the controller's work for one node on which two gates open:
// gathering facts, the decision, the patch, its accounting, and the decision after the
// write. The API server and the feed are not included.
func BenchmarkOpening(b *testing.B) {
	w := &world{nodes: map[string]gate.Node{}, gates: []*v1alpha1.NodeGate{controllertest.Gate("a"), controllertest.Gate("b", func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/b" })}, complete: true}
	for _, ng := range w.gates {
		ng.CreationTimestamp = metav1.NewTime(time.Now().Add(-48 * time.Hour))
	}
	w.add(5000, func(i int, n *gate.Node) {
		for _, ng := range w.gates {
			n.Records[ng.Name] = gate.Record{
				State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Boot: "boot", Taint: gate.TaintText(ng.Spec.Taint), Source: v1alpha1.SourceCRD,
			}.String()
			n.Taints = append(n.Taints, corev1.Taint{Key: ng.Spec.Taint.Key, Effect: ng.Spec.Taint.Effect})
		}
	})
	w.c = New(Options{Log: zap.New(zap.WriteTo(io.Discard))}, controllertest.Client(b, interceptor.Funcs{}), newTestMetrics())
	w.c.Attach(w, patched{w, b}, nil)
	defer w.c.queue.ShutDown()
	w.c.refreshGates(nil)
	names := w.NodeNames()
	closed := make(map[string]gate.Node, len(names))
	for _, name := range names {
		closed[name] = w.node(name)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := names[i%len(names)]
		w.nodes[name] = closed[name]
		for range 2 {
			w.c.workOn(b.Context(), name)
		}
		if len(w.node(name).Taints) > 0 {
			b.Fatal("the gates are closed")
		}
	}
}

// patched creates the patch, and does not send it.
type patched struct {
	*world
	b *testing.B
}

// Apply implements write.Applier.
func (p patched) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	if body, err := write.Patch(n, d); err != nil || len(body) == 0 {
		p.b.Fatalf("patch %s, error %v", body, err)
	}
	return p.world.Apply(ctx, n, d)
}
