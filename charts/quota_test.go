// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// onGKE is a version of Kubernetes as GKE reports it.
const onGKE = "v1.37.0-gke.1234000"

const quota = "ResourceQuota " + namespace + "/nodegate-critical-pods"

func TestQuotaIsAddedOnGKE(t *testing.T) {
	enabled := func(value any) object { return object{"priorityClassQuota": object{"enabled": value}} }
	for name, test := range map[string]struct {
		values      object
		version, in string
		want        bool
	}{
		"on GKE":                     {nil, onGKE, namespace, true},
		"on GKE, in kube-system":     {nil, onGKE, metav1.NamespaceSystem, false},
		"on GKE, but not wanted":     {enabled(false), onGKE, namespace, false},
		"elsewhere":                  {nil, "v1.37.0", namespace, false},
		"elsewhere, and wanted":      {enabled(true), "v1.37.0", namespace, true},
		"in kube-system, and wanted": {enabled(true), "v1.37.0", metav1.NamespaceSystem, true},
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for _, o := range rendered(t, test.values, "--namespace", test.in, "--kube-version", test.version) {
				found = found || o.GetKind() == "ResourceQuota" && o.GetName() == "nodegate-critical-pods" && o.GetNamespace() == test.in
			}
			if found != test.want {
				t.Errorf("the quota is rendered: %t, want %t", found, test.want)
			}
		})
	}
}

// Like GKE, this API server admits pods of critical priorities outside kube-system only if a
// ResourceQuota covers them.
func TestPodIsAdmittedOnGKE(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	write(t, file, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
`))
	w := newWorld(t, "1.37", "--admission-control-config-file="+file)
	w.apply([]*unstructured.Unstructured{restrictedNamespace()})
	w.applyCRDs(chart)
	w.apply(rendered(t, nil, "--kube-version", "v1.37.0"))
	objects := rendered(t, nil, "--kube-version", onGKE)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, Spec: deployment(t, objects).Spec.Template.Spec}
	if err := w.admin.Create(w.Context(), pod.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "insufficient quota") {
		t.Fatalf("creating the pod without a quota: %v, want that the quota is insufficient", err)
	}
	w.apply(objects)
	q := &corev1.ResourceQuota{}
	w.get(strings.TrimPrefix(quota, "ResourceQuota "), q)
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")} // no controller sets it here
	must(t, w.admin.Status().Update(w.Context(), q))
	eventually(t, "the quota to be in effect", func(ctx context.Context) error {
		return w.admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)
	})
	w.podIsAdmitted(objects)
}
