// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/internal/hold"
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
	if s := pod.SecurityContext.SELinuxOptions; s == nil || s.Type != "spc_t" {
		t.Errorf("SELinux options %v: the default type of containers may not write to the node's directories", s)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Privileged != nil || s.AppArmorProfile != nil {
			t.Errorf("%s: %+v", c.Name, s)
		}
		if c.Image != image {
			t.Errorf("%s: image %s", c.Name, c.Image)
		}
	}
	checkMounts(t, pod, pod.InitContainers[0], map[string]string{"/plugins": "/var/nri DirectoryOrCreate"})
	checkMounts(t, pod, pod.Containers[0], agentMounts)
	if args := pod.Containers[0].Args; !slices.Equal(args, []string{"--boot-id-file=/random/boot_id"}) {
		t.Errorf("the agent has the arguments %v", args)
	}
}

// agentMounts has what the agent mounts of the node. The node's boot ID may itself be a mount, so
// that /proc in the agent's container has another one.
var agentMounts = map[string]string{
	"/var/lib/nodegate": "/var/lib/nodegate DirectoryOrCreate", "/random": filepath.Dir(hold.BootIDFile) + " Directory, read-only",
}

// checkMounts compares a container's mounts with paths of the node and their types.
func checkMounts(t *testing.T, pod *corev1.PodSpec, c corev1.Container, want map[string]string) {
	t.Helper()
	paths, got := map[string]string{}, map[string]string{}
	for _, v := range pod.Volumes {
		paths[v.Name] = v.HostPath.Path + " " + string(*v.HostPath.Type)
	}
	for _, m := range c.VolumeMounts {
		got[m.MountPath] = paths[m.Name]
		if m.ReadOnly {
			got[m.MountPath] += ", read-only"
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s mounts %v, want %v", c.Name, got, want)
	}
}

func convert(t *testing.T, from map[string]any, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, to); err != nil {
		t.Fatal(err)
	}
}

// An agent that announces shutdowns may also patch the status of Nodes, confined by a policy, and
// is connected to the system bus. It also starts on nodes without one.
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
			checkAnnouncingAgent(t, &ds.Spec.Template.Spec)
		}
	}
	if want := []string{"patch", "nodes/status"}; !slices.Equal(writes, want) {
		t.Errorf("the agent may %v, want %v", writes, want)
	}
	if want := []string{`request.userInfo.username == "system:serviceaccount:agents:nodegate-agent"`, "nodegate-agent"}; !slices.Equal(slices.Sorted(slices.Values(policies)), slices.Sorted(slices.Values(want))) {
		t.Errorf("policies %v", policies)
	}
}

func checkAnnouncingAgent(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	agent := pod.Containers[0]
	if want := []string{"--boot-id-file=/random/boot_id", "--announce-shutdowns"}; !slices.Equal(agent.Args, want) {
		t.Errorf("the agent has the arguments %v, want %v", agent.Args, want)
	}
	mounts := maps.Clone(agentMounts)
	mounts["/run/dbus"] = "/run/dbus DirectoryOrCreate, read-only"
	checkMounts(t, pod, agent, mounts)
	if p := agent.SecurityContext.AppArmorProfile; p == nil || p.Type != corev1.AppArmorProfileTypeUnconfined {
		t.Errorf("AppArmor profile %v: the default one denies the use of the bus", p)
	}
	if p := pod.InitContainers[0].SecurityContext.AppArmorProfile; p != nil {
		t.Errorf("the init container has the AppArmor profile %v", p)
	}
}
