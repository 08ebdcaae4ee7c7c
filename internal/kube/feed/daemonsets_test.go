// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

func TestDaemonSets(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		sets := f.api.daemonSets("ns")
		sets.Put(kubetest.DaemonSet("one"))
		f.SetNeeds(gate.Needs{DaemonSetNamespaces: []string{"ns", "empty"}})
		changed := func(what string, want bool) {
			t.Helper()
			if _, n := f.handler.take(); (n > 0) != want {
				t.Errorf("%s: announced %d times", what, n)
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

		status := kubetest.DaemonSet("one")
		status.Status.NumberReady = 7
		sets.Put(status)
		changed("status", false)
		status.Status.DesiredNumberScheduled = 1
		sets.Put(status)
		changed("rollout", false)
		if !f.DaemonSets().Items[0].RollingOut || got.Items[0].RollingOut {
			t.Error("the rollout is not in the new snapshot, or is in the old one")
		}
		onDelete := kubetest.DaemonSet("one")
		onDelete.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		onDelete.Status.DesiredNumberScheduled = 1
		sets.Put(onDelete)
		if changed("OnDelete", false); f.DaemonSets().Items[0].RollingOut {
			t.Error("a DaemonSet with OnDelete counts as rolling out")
		}
		probed := kubetest.DaemonSet("one")
		probed.Generation++
		probed.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b", ReadinessProbe: &corev1.Probe{}}}
		sets.Put(probed)
		if changed("a probe", true); f.DaemonSets().Items[0].Unprobed || !got.Items[0].Unprobed {
			t.Error("Unprobed does not follow the containers' probes")
		}
		labelled := kubetest.DaemonSet("one")
		labelled.Labels = map[string]string{"l": "2"}
		sets.Put(labelled)
		changed("labels", true)
		terminating := labelled.DeepCopy()
		terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		terminating.Status.DesiredNumberScheduled = 1
		sets.Put(terminating)
		changed("being deleted", true)
		if ds := f.DaemonSets().Items[0]; !ds.Deleting || ds.RollingOut || got.Items[0].Deleting {
			t.Errorf("being deleted: %+v", ds)
		}
		sets.Put(kubetest.DaemonSet("another"))
		changed("second", true)
		if items := f.DaemonSets().Items; len(items) != 2 || items[0].Name != "another" {
			t.Errorf("sets = %+v", items)
		}

		sets.set(errForbidden)
		sets.hangUp()
		kubetest.Pass(time.Second)
		changed("unreadable", true)
		if got := f.DaemonSets(); got.Observed["ns"] || !got.Observed["empty"] || len(got.Items) != 2 {
			t.Errorf("sets = %+v while they cannot be read", got)
		}
		sets.set(nil)
		kubetest.Pass(time.Minute)
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

// A pod is ready as soon as it runs only if nothing in it delays its readiness.
func TestUnprobed(t *testing.T) {
	always, probe := corev1.ContainerRestartPolicyAlways, &corev1.Probe{}
	for name, c := range map[string]struct {
		pod  corev1.PodSpec
		want bool
	}{
		"no probe":                        {corev1.PodSpec{Containers: []corev1.Container{{}, {LivenessProbe: probe}}}, true},
		"a readiness probe":               {corev1.PodSpec{Containers: []corev1.Container{{}, {ReadinessProbe: probe}}}, false},
		"a startup probe":                 {corev1.PodSpec{Containers: []corev1.Container{{}, {StartupProbe: probe}}}, false},
		"a readiness gate":                {corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.com/ready"}}}, false},
		"a sidecar with a probe":          {corev1.PodSpec{InitContainers: []corev1.Container{{RestartPolicy: &always, ReadinessProbe: probe}}}, false},
		"a sidecar with a startup probe":  {corev1.PodSpec{InitContainers: []corev1.Container{{RestartPolicy: &always, StartupProbe: probe}}}, false},
		"a sidecar without a probe":       {corev1.PodSpec{InitContainers: []corev1.Container{{RestartPolicy: &always}}}, true},
		"an init container that finishes": {corev1.PodSpec{InitContainers: []corev1.Container{{}}}, true},
	} {
		o := kubetest.DaemonSet("one")
		o.Spec.Template.Spec = c.pod
		if got := NewDaemonSet(o).Unprobed; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestDaemonTolerations(t *testing.T) {
	if got := len(tolerations(&corev1.PodSpec{HostNetwork: true})); got != 7 {
		t.Errorf("%d tolerations", got)
	}
}

// Two pods of a DaemonSet can be on a node only if its rollouts surge.
func TestSurges(t *testing.T) {
	for name, test := range map[string]struct {
		strategy appsv1.DaemonSetUpdateStrategyType
		surge    *intstr.IntOrString
		want     bool
	}{
		"one":          {appsv1.RollingUpdateDaemonSetStrategyType, new(intstr.FromInt32(1)), true},
		"a percent":    {appsv1.RollingUpdateDaemonSetStrategyType, new(intstr.FromString("1%")), true},
		"none":         {appsv1.RollingUpdateDaemonSetStrategyType, new(intstr.FromInt32(0)), false},
		"zero percent": {appsv1.RollingUpdateDaemonSetStrategyType, new(intstr.FromString("0%")), false},
		"not set":      {appsv1.RollingUpdateDaemonSetStrategyType, nil, false},
		"OnDelete":     {appsv1.OnDeleteDaemonSetStrategyType, new(intstr.FromInt32(1)), false},
	} {
		o := kubetest.DaemonSet("one")
		o.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: test.strategy, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: test.surge}}
		if got := NewDaemonSet(o).Surges; got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if o := kubetest.DaemonSet("one"); NewDaemonSet(o).Surges {
		t.Error("without a strategy")
	}
}
