// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The agent may only read, and its containers have no privileges except those of their volumes.
// It runs on every Linux node, whatever its taints, and before the pod network.
func TestAgent(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("ab", 32)
	objects := rendered(t, object{"agent": object{
		"enabled": true, "namespace": "agents", "nodeSelector": object{"pool": "a"}, "pluginDir": "/var/nri",
		"image": object{"repository": "registry.example.com/agent", "digest": digest},
	}})
	kinds := 0
	for _, o := range objects {
		if o.GetName() != "nodegate-agent" {
			continue
		}
		kinds++
		switch o.GetKind() {
		case "ClusterRole":
			var role rbacv1.ClusterRole
			convert(t, o.Object, &role)
			for _, rule := range role.Rules {
				if !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
					t.Errorf("the agent may %v %v", rule.Verbs, rule.Resources)
				}
			}
		case "DaemonSet":
			var ds appsv1.DaemonSet
			convert(t, o.Object, &ds)
			checkAgent(t, &ds, "registry.example.com/agent@"+digest)
		}
	}
	if kinds != 4 {
		t.Errorf("there are %d objects", kinds)
	}
}

func checkAgent(t *testing.T, ds *appsv1.DaemonSet, image string) {
	t.Helper()
	pod := &ds.Spec.Template.Spec
	if ds.Namespace != "agents" || pod.NodeSelector["pool"] != "a" || pod.NodeSelector[corev1.LabelOSStable] != "linux" || !pod.HostNetwork {
		t.Errorf("namespace %s, selector %v, host network %v", ds.Namespace, pod.NodeSelector, pod.HostNetwork)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("tolerations %v", pod.Tolerations)
	}
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Privileged != nil {
			t.Errorf("%s: %+v", c.Name, s)
		}
		if c.Image != image || len(c.VolumeMounts) != 1 {
			t.Errorf("%s: image %s, volumes %v", c.Name, c.Image, c.VolumeMounts)
		}
	}
	installs, runs := pod.InitContainers[0].VolumeMounts[0], pod.Containers[0].VolumeMounts[0]
	if paths[installs.Name] != "/var/nri" || paths[runs.Name] != "/var/lib/nodegate" || runs.MountPath != "/var/lib/nodegate" {
		t.Errorf("the init container has %s, the agent %s at %s", paths[installs.Name], paths[runs.Name], runs.MountPath)
	}
}

func convert(t *testing.T, from map[string]any, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, to); err != nil {
		t.Fatal(err)
	}
}
