// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

func testDaemonSet(name string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: "ds", Generation: 1, Labels: map[string]string{"l": "1"},
	}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "x"}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	ds.Status.ObservedGeneration = 1
	return ds
}

func TestDaemonSets(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().put(testNode("a", "a1")) }, func(t *testing.T, f *testFeed) {
		sets := f.api.daemonSets("ns")
		sets.put(testDaemonSet("one"))
		f.SetNeeds(gate.Needs{DaemonSetNamespaces: []string{"ns", "empty"}})
		changed := func(what string, want bool) {
			t.Helper()
			if _, n := f.told.take(); (n > 0) != want {
				t.Errorf("%s: told %d times", what, n)
			}
		}
		changed("read", true)
		got := f.DaemonSets()
		if !got.Observed["ns"] || !got.Observed["empty"] || len(got.Items) != 1 {
			t.Fatalf("sets = %+v", got)
		}
		ds := got.Items[0]
		if ds.Pods != (gate.PodQuery{Namespace: "ns", Selector: "a=1,b=2"}) || len(ds.Tolerations) != 7 || ds.RollingOut {
			t.Errorf("daemonset = %+v", ds)
		}
		if ok, err := ds.Affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "x"}}}); !ok || err != nil {
			t.Errorf("affinity: %v, %v", ok, err)
		}

		status := testDaemonSet("one")
		status.Status.NumberReady = 7
		sets.put(status)
		changed("status", false)
		status.Status.DesiredNumberScheduled = 1
		sets.put(status)
		changed("rollout", false)
		if !f.DaemonSets().Items[0].RollingOut || got.Items[0].RollingOut {
			t.Error("the rollout is not in the new snapshot, or is in the old one")
		}
		onDelete := testDaemonSet("one")
		onDelete.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		onDelete.Status.DesiredNumberScheduled = 1
		sets.put(onDelete)
		if changed("OnDelete", false); f.DaemonSets().Items[0].RollingOut {
			t.Error("pods that only a person replaces are said to be rolling out")
		}
		probed := testDaemonSet("one")
		probed.Generation++
		probed.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b", ReadinessProbe: &corev1.Probe{}}}
		sets.put(probed)
		if changed("a probe", true); f.DaemonSets().Items[0].Unprobed || !got.Items[0].Unprobed {
			t.Error("whether it is probed is not told")
		}
		labelled := testDaemonSet("one")
		labelled.Labels = map[string]string{"l": "2"}
		sets.put(labelled)
		changed("labels", true)
		sets.put(testDaemonSet("another"))
		changed("second", true)
		if items := f.DaemonSets().Items; len(items) != 2 || items[0].Name != "another" {
			t.Errorf("sets = %+v", items)
		}

		sets.hangUp()
		sets.set(errForbidden)
		pass(time.Second)
		changed("unreadable", true)
		if got := f.DaemonSets(); got.Observed["ns"] || !got.Observed["empty"] || len(got.Items) != 2 {
			t.Errorf("sets = %+v while they cannot be read", got)
		}
		sets.set(nil)
		pass(time.Minute)
		changed("readable", true)
		sets.remove("one")
		changed("deleted", true)
		f.SetNeeds(gate.Needs{DaemonSetNamespaces: []string{"empty"}})
		changed("not needed", true)
		if got := f.DaemonSets(); got.Observed["ns"] || len(got.Items) != 0 {
			t.Errorf("sets = %+v", got)
		}
	})
}

func TestDaemonTolerations(t *testing.T) {
	if got := len(tolerations(&corev1.PodSpec{HostNetwork: true})); got != 7 {
		t.Errorf("%d tolerations", got)
	}
}
