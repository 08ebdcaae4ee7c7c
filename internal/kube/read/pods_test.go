// SPDX-License-Identifier: Apache-2.0

package read

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// A pod as a Deployment creates it requests what the API server makes the same pod request.
func TestPodOfDeploymentRequestsLimits(t *testing.T) {
	s := kubetest.Start(t)
	const namespace = "default"
	s.ServiceAccount(t, namespace)
	list := func(pairs ...string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return all
	}
	const hugePages = corev1.ResourceHugePagesPrefix + "2Mi"
	type resources = corev1.ResourceRequirements
	for name, c := range map[string]struct {
		pod              *resources
		container, setup resources
	}{
		"of-containers":      {nil, resources{Limits: list("cpu", "2", "memory", "1Gi"), Requests: list("cpu", "1")}, resources{Limits: list("memory", "3Gi")}},
		"of-the-pod":         {&resources{Limits: list("cpu", "64", "memory", "8Gi")}, resources{}, resources{}},
		"partly-of-the-pod":  {&resources{Limits: list("cpu", "64", "memory", "8Gi"), Requests: list("cpu", "2")}, resources{}, resources{}},
		"containers-request": {&resources{Limits: list("cpu", "64", "memory", "8Gi")}, resources{Requests: list("cpu", "1")}, resources{Requests: list("cpu", "3")}},
		"containers-limit":   {&resources{Limits: list("cpu", "64")}, resources{Limits: list("cpu", "2")}, resources{}},
		"pod-requests-only":  {&resources{Requests: list("cpu", "4")}, resources{Requests: list("cpu", "1", "memory", "1Gi")}, resources{}},
		"huge-pages":         {&resources{Limits: list("cpu", "1", hugePages, "8Mi")}, resources{Limits: list("cpu", "1", hugePages, "4Mi")}, resources{}},
		"other-kinds":        {&resources{Limits: list("cpu", "64")}, resources{Requests: list("ephemeral-storage", "1Gi")}, resources{}},
		"neither-set":        {nil, resources{}, resources{}},
	} {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{"app": name}
			template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Resources:      c.pod,
				Containers:     []corev1.Container{{Name: "main", Image: "main", Resources: c.container}},
				InitContainers: []corev1.Container{{Name: "setup", Image: "setup", Resources: c.setup}},
			}}
			all := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			created, err := s.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}, all)
			if err != nil {
				t.Fatal(err)
			}
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
			if _, err := s.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			pod, err := newTestReader(t, s).PodOfDeployment(t.Context(), namespace, name)
			if err != nil {
				t.Fatal(err)
			}
			got, want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), resourcehelper.PodRequests(created, resourcehelper.PodResourcesOptions{})
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("the pod requests %v, that of the API server %v", got, want)
			}
		})
	}
}
