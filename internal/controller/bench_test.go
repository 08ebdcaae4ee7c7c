// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/nodequeue"
)

// manyGates returns a number of gates. onNode of them, with different taints, select the
// nodes of each pool.
func manyGates(number, onNode int) []*v1alpha1.NodeGate {
	gates := make([]*v1alpha1.NodeGate, number)
	for i := range gates {
		gates[i] = controllertest.Gate(fmt.Sprintf("gate-%03d", i), func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Key = fmt.Sprintf("test.nodegate.dev/%d", i%onNode)
			s.NodeSelector = v1alpha1.LabelSelector{MatchLabels: map[string]string{"pool": fmt.Sprint(i / onNode)}}
		})
		gates[i].CreationTimestamp = metav1.NewTime(time.Now().Add(-48 * time.Hour))
	}
	return gates
}

// BenchmarkChangedGate measures the time from the change of a gate until all of 5,000
// nodes have been reconciled, each with 20 of 200 gates. Nothing is written.
func BenchmarkChangedGate(b *testing.B) {
	const nodes, number, onNode = 5000, 200, 20
	gates := manyGates(number, onNode)
	w := &world{nodes: map[string]gate.Node{}, gates: gates, complete: true}
	w.add(nodes, func(i int, n *gate.Node) {
		pool := i % (number / onNode)
		n.Labels["pool"] = fmt.Sprint(pool)
		for _, ng := range gates[pool*onNode:][:onNode] {
			n.Records[ng.Name] = gate.Record{
				State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Since: time.Now().Add(-10 * time.Minute), Boot: "boot",
				Taint: gate.TaintText(ng.Spec.Taint), Source: v1alpha1.SourceCRD,
			}.String()
		}
	})
	w.c = New(Options{Log: logr.Discard()}, controllertest.Client(b, interceptor.Funcs{}), newTestMetrics())
	w.c.Attach(w, w, nil)
	defer w.c.queue.ShutDown()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	w.c.refreshGates(nil)
	w.c.leading.Store(true)
	var running sync.WaitGroup
	for range w.c.options.Workers {
		running.Go(func() { w.c.work(ctx, &nodequeue.Worker{}) })
	}
	running.Go(func() { w.c.resync.Run(ctx) })
	for b.Loop() {
		gates[0] = gates[0].DeepCopy()
		gates[0].Generation++
		w.c.refreshGates(nil)
		for ; !w.c.ledger.IsCounted(gates[0].Name); <-time.After(time.Millisecond) {
			w.c.ledger.SetFleet(w.NodeNames(), w.c.set.Load().Seq, true)
		}
	}
	b.StopTimer()
	if w.written() > 0 {
		b.Errorf("%d nodes were written", w.written())
	}
	w.c.queue.ShutDown()
	cancel()
	running.Wait()
}
