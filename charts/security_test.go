// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// everyPod returns the pod template of each installation method.
func everyPod(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	pods := make(map[string]corev1.PodTemplateSpec)
	for what, objects := range map[string][]*unstructured.Unstructured{
		"chart":              rendered(t, nil, "--kube-version", "1.37"),
		"chart, by webhook":  rendered(t, object{"birth": "webhook"}),
		"chart, with files":  rendered(t, object{"gatesFromFiles": object{"enabled": true}}, "--kube-version", "1.37"),
		"deploy":             built(t, "../deploy"),
		"deploy before 1.36": built(t, "../deploy/before-1.36"),
	} {
		pods[what] = deployment(t, objects).Spec.Template
	}
	return pods
}

// The namespace of deploy/ admits the pods of the installation, and no pod that could
// compromise a node: the API server enforces the Pod Security Standard "restricted".
func TestPodSecurityIsRestricted(t *testing.T) {
	c := clustertest.Shared(t)
	api, err := kubernetes.NewForConfig(c.Admin())
	must(t, err)
	labels := find(t, built(t, "../deploy"), "Namespace "+namespace).GetLabels()
	ns, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-", Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
	_, err = api.CoreV1().ServiceAccounts(ns.Name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nodegate"}}, metav1.CreateOptions{})
	must(t, err)
	create := func(pod *corev1.Pod) error {
		_, err := api.CoreV1().Pods(ns.Name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for what, template := range everyPod(t) {
		pod := func() *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nodegate", Labels: template.Labels}, Spec: *template.Spec.DeepCopy()}
		}
		t.Run(what, func(t *testing.T) {
			must(t, create(pod()))
			for change, by := range map[string]func(*corev1.PodSpec, *corev1.SecurityContext){
				"is privileged": func(_ *corev1.PodSpec, s *corev1.SecurityContext) {
					s.Privileged, s.AllowPrivilegeEscalation = new(true), nil
				},
				"escalates":                func(_ *corev1.PodSpec, s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = nil },
				"keeps capabilities":       func(_ *corev1.PodSpec, s *corev1.SecurityContext) { s.Capabilities = nil },
				"may be root":              func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.RunAsNonRoot = nil },
				"is root":                  func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.RunAsUser = new(int64(0)) },
				"has no seccomp":           func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.SeccompProfile = nil },
				"is on the node's network": func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.HostNetwork = true },
				"has the node's files": func(p *corev1.PodSpec, _ *corev1.SecurityContext) {
					p.Volumes = append(p.Volumes, corev1.Volume{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
				},
			} {
				p := pod()
				by(&p.Spec, p.Spec.Containers[0].SecurityContext)
				if err := create(p); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) {
					t.Errorf("a pod that %s: %v", change, err)
				}
			}
		})
	}
}

// Beyond "restricted", pods have no writable file system, no other container, a memory
// limit, and no CPU limit (see docs/performance.md).
func TestPodsAreConfinedFurther(t *testing.T) {
	t.Parallel()
	for what, template := range everyPod(t) {
		p := template.Spec
		if len(p.Containers) != 1 || len(p.InitContainers) > 0 {
			t.Fatalf("%s has %d containers", what, len(p.Containers)+len(p.InitContainers))
		}
		c := p.Containers[0]
		if s := c.SecurityContext; !ptr.Deref(s.ReadOnlyRootFilesystem, false) {
			t.Errorf("%s: the file system is writable", what)
		}
		for _, mount := range c.VolumeMounts {
			if !mount.ReadOnly {
				t.Errorf("%s: %s is writable", what, mount.MountPath)
			}
		}
		if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: resources are %+v", what, c.Resources)
		}
	}
}
