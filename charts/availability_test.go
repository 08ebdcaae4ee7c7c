// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// The kubelet restarts nodegate only if its workers hang. A replica that is not ready, for example
// because the API server does not answer, must not restart.
func TestProbes(t *testing.T) {
	for what, pod := range everyPod(t) {
		container := pod.Spec.Containers[0]
		for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "health" {
				t.Errorf("%s: the probe is %v, want %s on the health port", what, probe, path)
			}
		}
	}
}

// Nodegate serves its health port only when it has reviewed its permissions. If the API server is
// slow, that takes minutes, in which the kubelet must not restart it: the reviews would begin again.
func TestStartIsNotInterrupted(t *testing.T) {
	for what, pod := range everyPod(t) {
		container := pod.Spec.Containers[0]
		probe := container.StartupProbe
		if probe == nil || probe.HTTPGet == nil || !reflect.DeepEqual(probe.HTTPGet, container.LivenessProbe.HTTPGet) {
			t.Errorf("%s: the startup probe is %v, want that of liveness", what, probe)
			continue
		}
		if start := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; start < 5*time.Minute {
			t.Errorf("%s: the kubelet restarts nodegate after %s", what, start)
		}
	}
}

// With any number of replicas, also one, a drain can evict a pod, and evicts one at a time.
func TestDisruptionBudgetDoesNotBlockDrains(t *testing.T) {
	for what, objects := range map[string][]*unstructured.Unstructured{
		"chart": rendered(t, nil, "--kube-version", "1.37"), "one replica": rendered(t, object{"replicas": 1}, "--kube-version", "1.37"), "deploy": built(t, "../deploy"),
	} {
		spec := decoded[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget "+namespace+"/nodegate").Spec
		if spec.MinAvailable != nil || spec.MaxUnavailable == nil || spec.MaxUnavailable.String() != "1" {
			t.Errorf("%s: minAvailable is %v, maxUnavailable %v, want only maxUnavailable 1", what, spec.MinAvailable, spec.MaxUnavailable)
		}
		if got := ptr.Deref(spec.UnhealthyPodEvictionPolicy, ""); got != policyv1.AlwaysAllow {
			t.Errorf("%s: unhealthyPodEvictionPolicy is %q, want %s", what, got, policyv1.AlwaysAllow)
		}
	}
}
