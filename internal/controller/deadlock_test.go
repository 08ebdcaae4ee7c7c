// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// If each of two gates waits for a DaemonSet that does not tolerate the other gate's taint,
// and both are closed on a node, both report a deadlock. They do not if one of the
// DaemonSets tolerates both taints.
func TestDeadlockedGatesReportIt(t *testing.T) {
	daemon := func(name string, keys ...string) gate.DaemonSet {
		ds := gate.DaemonSet{Namespace: "ns", Name: name, UID: types.UID(name), Pods: gate.PodQuery{Namespace: "ns", Selector: "app=" + name}}
		for _, key := range keys {
			ds.Tolerations = append(ds.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
		return ds
	}
	waitingGate := func(name string) *v1alpha1.NodeGate {
		return controllertest.Gate(name, func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Key = "test.nodegate.dev/" + name
			s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: name}}
			s.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{{Key: name, Operator: metav1.LabelSelectorOpExists}}
		})
	}
	for name, c := range map[string]struct {
		labels   []map[string]string
		daemons  []gate.DaemonSet
		deadlock bool
	}{
		"on the same node":   {[]map[string]string{{"a": "", "b": ""}}, []gate.DaemonSet{daemon("a", "test.nodegate.dev/a"), daemon("b", "test.nodegate.dev/b")}, true},
		"on different nodes": {[]map[string]string{{"a": ""}, {"b": ""}}, []gate.DaemonSet{daemon("a", "test.nodegate.dev/a"), daemon("b", "test.nodegate.dev/b")}, false},
		"one tolerates both": {[]map[string]string{{"a": "", "b": ""}}, []gate.DaemonSet{daemon("a", "test.nodegate.dev/a", "test.nodegate.dev/b"), daemon("b", "test.nodegate.dev/b")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, waitingGate("a"), waitingGate("b"))
				w.daemonSets, w.observed = c.daemons, map[string]bool{"ns": true}
				w.agents = map[gate.PodQuery][]gate.Pod{c.daemons[0].Pods: nil, c.daemons[1].Pods: nil}
				w.add(len(c.labels), func(i int, n *gate.Node) { n.Created, n.Labels = time.Now(), c.labels[i] })
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(time.Minute)
				for _, name := range []string{"a", "b"} {
					ready := meta.FindStatusCondition(w.stored(name).Status.Conditions, v1alpha1.ConditionReady)
					if reported := ready != nil && ready.Reason == v1alpha1.ReasonGatesDeadlocked; reported != c.deadlock {
						t.Errorf("gate %s: condition %+v, want a deadlock: %t", name, ready, c.deadlock)
					} else if reported && !strings.Contains(ready.Message, "on n0000: this gate waits for DaemonSet ns/"+name) {
						t.Errorf("gate %s: %s", name, ready.Message)
					}
				}
			})
		})
	}
}
