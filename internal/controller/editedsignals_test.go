// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
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

// waitingForPods returns a gate that waits for the pods of an app.
func waitingForPods(app string) *v1alpha1.NodeGate {
	return controllertest.Gate("gate", func(spec *v1alpha1.NodeGateSpec) {
		spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
			Namespace: "ns", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
		spec.ReclosePolicy = v1alpha1.RecloseOnReboot
	})
}

func podsOf(app string) gate.PodQuery { return gate.PodQuery{Namespace: "ns", Selector: "app=" + app} }

// formerPod returns a pod that has been ready for half an hour.
func formerPod(name string, i gate.Incarnation) gate.Pod {
	old := time.Now().Add(-30 * time.Minute)
	return gate.Pod{UID: types.UID(name), Name: name, Created: old, Ready: true, ReadySince: old, Incarnation: i}
}

func testEditedEvidence(t *testing.T, edit func(*v1alpha1.NodeGate)) {
	t.Helper()
	w := newWorld(t, waitingForPods("a"))
	w.agents = map[gate.PodQuery][]gate.Pod{podsOf("a"): {formerPod("a", 1)}, podsOf("b"): {formerPod("b", 2)}}
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
	edited := waitingForPods("b")
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

// While the edited gate is compiled, a worker still decides with the former signals. What it then
// records for a boot says nothing about the pods of the new ones.
func TestSignalsAreEditedWhileAGateCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, waitingForPods("a"))
		w.agents = map[gate.PodQuery][]gate.Pod{podsOf("a"): {}, podsOf("b"): {formerPod("b", 2)}}
		w.add(1, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		edited := waitingForPods("b")
		edited.Generation = 2
		w.compile = func(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
			if ng.Generation == 2 {
				w.change("n0000", func(n *gate.Node) {
					n.BootID = "next"
					n.Conditions = []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionFalse}}
				})
				<-time.After(time.Second) // a large set of gates takes as long
			}
			return signal.Compile(ng, source)
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.setGates(true, edited)
		controllertest.Pass(10 * time.Minute)
		if r, _ := gate.ParseRecord(w.node("n0000").Records["gate"]); r.State != v1alpha1.StateClosed || r.Boot != "next" {
			t.Errorf("it has the record %v, want it closed: the pod was ready before the boot", r)
		}
	})
}
