// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// A gate opens when minReadySeconds have passed, without an event, and even if the
// controller was replaced meanwhile.
func TestMinReadyIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(spec *v1alpha1.NodeGateSpec) {
			spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
				Namespace: "a", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, MinReadySeconds: 3600,
			}}
		}))
		ready := time.Now()
		w.agents = map[gate.PodQuery][]gate.Pod{{Namespace: "a", Selector: "app=agent"}: {{
			UID: "agent", Name: "a/agent", Created: ready.Add(-time.Minute), Ready: true, ReadySince: ready,
		}}}
		w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(30 * time.Minute)
		waiting := w.stored("gate").Status.Waiting
		if len(waiting) != 1 || waiting[0].Reason != string(v1alpha1.ReadingPodReadyTooBriefly) {
			t.Errorf("waiting: %+v, want minReadySeconds", waiting)
		}
		stop()
		controllertest.Pass(10 * time.Minute)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Until(ready.Add(time.Hour - time.Second)))
		if w.closed() != 1 || w.written() != 0 {
			t.Error("it opened too early")
		}
		controllertest.Pass(2 * time.Second)
		if w.closed() != 0 || w.written() != 1 {
			t.Errorf("when the time has passed, %d nodes are closed after %d writes, want none after 1", w.closed(), w.written())
		}
	})
}
