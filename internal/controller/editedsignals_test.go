// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// The record of a gate that has closed for a boot lists the pods of its signals that were ready
// before. If the signals are edited, or the gate is created again, it says nothing about the pods of the
// new ones. A kubelet that is not Ready may not have corrected their statuses.
func TestSignalsAreEditedAfterAReboot(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.NodeGate){
		"edited":        func(ng *v1alpha1.NodeGate) { ng.Generation = 2 },
		"created again": func(ng *v1alpha1.NodeGate) { ng.UID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testEditedEvidence(t, edit) })
		})
	}
}

func testEditedEvidence(t *testing.T, edit func(*v1alpha1.NodeGate)) {
	t.Helper()
	waitsFor := func(app string) *v1alpha1.NodeGate {
		return controllertest.Gate("gate", func(spec *v1alpha1.NodeGateSpec) {
			spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
				Namespace: "ns", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			}}
			spec.ReclosePolicy = v1alpha1.RecloseOnReboot
		})
	}
	w := newWorld(t, waitsFor("a"))
	old := time.Now().Add(-30 * time.Minute)
	w.agents = map[gate.PodQuery][]gate.Pod{
		{Namespace: "ns", Selector: "app=a"}: {{UID: "a", Name: "a", Created: old, Ready: true, ReadySince: old, Incarnation: 1}},
		{Namespace: "ns", Selector: "app=b"}: {{UID: "b", Name: "b", Created: old, Ready: true, ReadySince: old, Incarnation: 2}},
	}
	w.add(1, func(_ int, n *gate.Node) {
		isClosed(n, "gate", v1alpha1.ReasonRebooted)
		r, err := gate.ParseRecord(n.Records["gate"])
		if err != nil {
			t.Fatal(err)
		}
		r.Digest = "1"
		n.Records["gate"] = r.String()
		n.Conditions[0].Status = corev1.ConditionFalse
	})
	defer w.start(logr.Discard(), interceptor.Funcs{})()
	controllertest.Pass(time.Minute)
	edited := waitsFor("b")
	edit(edited)
	w.setGates(true, edited)
	controllertest.Pass(10 * time.Minute)
	if w.closed() != 1 {
		t.Error("it opened because of a pod that was ready before the boot")
	}
	w.change("n0000", func(n *gate.Node) {
		n.Conditions = []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionTrue, Transition: time.Now()}}
	})
	controllertest.Pass(2 * time.Minute)
	if w.closed() != 0 {
		t.Error("it is closed although the kubelet has been Ready for two minutes")
	}
}
