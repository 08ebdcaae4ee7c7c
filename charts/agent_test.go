// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
			if writes := agentWrites(t, o.Object); len(writes) > 0 {
				t.Errorf("the agent may %v", writes)
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

// agentWrites returns the verbs and resources of the rules that allow more than reading.
func agentWrites(t *testing.T, clusterRole object) (writes []string) {
	t.Helper()
	var role rbacv1.ClusterRole
	convert(t, clusterRole, &role)
	for _, rule := range role.Rules {
		if !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
			writes = append(writes, slices.Concat(rule.Verbs, rule.Resources)...)
		}
	}
	return writes
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

// An agent that announces shutdowns may also patch the status of Nodes, confined by a policy.
func TestAgentAnnouncesShutdowns(t *testing.T) {
	t.Parallel()
	var policies, writes []string
	for _, o := range rendered(t, object{"agent": object{"enabled": true, "namespace": "agents", "announceShutdowns": true}}) {
		if o.GetName() != "nodegate-agent" {
			continue
		}
		switch o.GetKind() {
		case "ClusterRole":
			writes = agentWrites(t, o.Object)
		case "ValidatingAdmissionPolicy":
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			convert(t, o.Object, &policy)
			policies = append(policies, policy.Spec.MatchConditions[0].Expression)
		case "ValidatingAdmissionPolicyBinding":
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			convert(t, o.Object, &binding)
			policies = append(policies, binding.Spec.PolicyName)
		case "DaemonSet":
			var ds appsv1.DaemonSet
			convert(t, o.Object, &ds)
			if args := ds.Spec.Template.Spec.Containers[0].Args; !slices.Equal(args, []string{"--announce-shutdowns"}) {
				t.Errorf("the agent has the arguments %v", args)
			}
		}
	}
	if want := []string{"patch", "nodes/status"}; !slices.Equal(writes, want) {
		t.Errorf("the agent may %v, want %v", writes, want)
	}
	if want := []string{`request.userInfo.username == "system:serviceaccount:agents:nodegate-agent"`, "nodegate-agent"}; !slices.Equal(slices.Sorted(slices.Values(policies)), slices.Sorted(slices.Values(want))) {
		t.Errorf("policies %v", policies)
	}
}
