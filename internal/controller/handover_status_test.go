// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
)

// A new leader needs seconds to probe many gates. Until then, they remain Ready.
func TestGatesRemainReadyAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, last = 40, "gate-39"
		w := newWorld(t)
		for i := range many {
			w.gates = append(w.gates, controllertest.Gate(fmt.Sprintf("gate-%02d", i), func(s *v1alpha1.NodeGateSpec) {
				s.NodeSelector.MatchLabels = map[string]string{"pool": fmt.Sprint(i)}
			}))
		}
		isReady := func(name string) bool {
			return meta.IsStatusConditionTrue(w.stored(name).Status.Conditions, v1alpha1.ConditionReady)
		}
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(20 * time.Second)
		for i, ng := range w.gates {
			if !isReady(ng.Name) {
				t.Fatalf("gate %s is not Ready: %+v", ng.Name, w.stored(ng.Name).Status.Conditions)
			}
			w.gates[i] = w.stored(ng.Name)
		}
		stop()

		w.tookOver = true
		defer w.start(logr.Discard(), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if node, probe := obj.(*corev1.Node); probe && node.Name == "nodegate-probe-"+last {
				return nil // without closing the gate
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		}})()
		controllertest.Pass(1050 * time.Millisecond)
		for _, ng := range w.gates {
			if !isReady(ng.Name) {
				t.Errorf("gate %s is not Ready: %+v", ng.Name, w.stored(ng.Name).Status.Conditions)
			}
		}
		if n := testutil.CollectAndCount(w.c.metrics.Proved); n == 0 || n == many {
			t.Errorf("%d of %d gates have a series of proofs, want only those that were probed", n, many)
		}
		controllertest.Pass(20 * time.Second)
		for _, ng := range w.gates {
			if isReady(ng.Name) == (ng.Name == last) {
				t.Errorf("after the probe, gate %s: %+v", ng.Name, w.stored(ng.Name).Status.Conditions)
			}
		}
		for _, e := range w.events() {
			if e.Reason == v1alpha1.EventNotReady && e.Regarding.Name != last {
				t.Errorf("gate %s has an Event %s: %s", e.Regarding.Name, e.Reason, e.Note)
			}
		}
		if n := testutil.CollectAndCount(w.c.metrics.Proved); n != many {
			t.Errorf("%d of %d gates have a series of proofs", n, many)
		}
	})
}
