// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// onGKE is a version of Kubernetes as GKE reports it.
const onGKE = "v1.37.0-gke.1234000"

const quota = "ResourceQuota " + namespace + "/nodegate-critical-pods"

// agentQuota is the name of the quota in the namespace of the agent.
const agentQuota = "nodegate-agent-critical-pods"

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

// The agent's priority class needs a quota of its own in the agent's namespace, also if that is the
// release's namespace.
func TestQuotaOfAgentIsAddedOnGKE(t *testing.T) {
	values := func(agentNamespace string, enabled any) object {
		return object{"agent": object{"enabled": true, "namespace": agentNamespace}, "priorityClassQuota": object{"enabled": enabled}}
	}
	for name, test := range map[string]struct {
		values      object
		version, in string
		want        []string
	}{
		"in its own namespace":            {values("agents", "auto"), onGKE, namespace, []string{"agents/" + agentQuota, namespace + "/nodegate-critical-pods"}},
		"in the release's namespace":      {values(namespace, "auto"), onGKE, namespace, []string{namespace + "/" + agentQuota, namespace + "/nodegate-critical-pods"}},
		"in kube-system":                  {values(metav1.NamespaceSystem, "auto"), onGKE, namespace, []string{namespace + "/nodegate-critical-pods"}},
		"in kube-system, and wanted":      {values(metav1.NamespaceSystem, true), "v1.37.0", namespace, []string{namespace + "/nodegate-critical-pods"}},
		"only the release in kube-system": {values("agents", "auto"), onGKE, metav1.NamespaceSystem, []string{"agents/" + agentQuota}},
		"elsewhere":                       {values("agents", "auto"), "v1.37.0", namespace, nil},
		"elsewhere, and wanted":           {values("agents", true), "v1.37.0", namespace, []string{"agents/" + agentQuota, namespace + "/nodegate-critical-pods"}},
		"not wanted":                      {values("agents", false), onGKE, namespace, nil},
		"not enabled":                     {object{"agent": object{"namespace": "agents"}}, onGKE, namespace, []string{namespace + "/nodegate-critical-pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range rendered(t, test.values, "--namespace", test.in, "--kube-version", test.version) {
				if o.GetKind() == "ResourceQuota" {
					got = append(got, o.GetNamespace()+"/"+o.GetName())
				}
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("quotas %q, want %q", got, test.want)
			}
		})
	}
}

// The quota of the agent's namespace admits an agent on each node of the largest cluster.
func TestQuotaOfAgentDoesNotLimitNodes(t *testing.T) {
	for _, in := range []string{"agents", namespace} {
		values := object{"agent": object{"enabled": true, "namespace": in}, "priorityClassName": "system-node-critical"}
		for _, o := range rendered(t, values, "--kube-version", onGKE) {
			if o.GetKind() != "ResourceQuota" || o.GetNamespace() != in {
				continue
			}
			var q corev1.ResourceQuota
			convert(t, o.Object, &q)
			if pods := q.Spec.Hard.Pods(); pods.Value() < 1_000_000 {
				t.Errorf("the quota %s admits %s agents", key(o), pods)
			}
		}
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
	agents := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "agents"}}
	must(t, w.admin.Create(w.Context(), agents))
	w.apply([]*unstructured.Unstructured{restrictedNamespace()})
	w.applyCRDs(chart)
	values := object{"agent": object{"enabled": true, "namespace": agents.Name}}
	w.apply(rendered(t, values, "--kube-version", "v1.37.0"))
	objects := rendered(t, values, "--kube-version", onGKE)
	daemonSet := decoded[appsv1.DaemonSet](t, objects, "DaemonSet agents/nodegate-agent")
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, Spec: deployment(t, objects).Spec.Template.Spec},
		{ObjectMeta: metav1.ObjectMeta{Namespace: agents.Name, Name: "one"}, Spec: daemonSet.Spec.Template.Spec},
	}
	for _, pod := range pods {
		if err := w.admin.Create(w.Context(), pod.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "insufficient quota") {
			t.Fatalf("creating the pod %s/%s without a quota: %v, want that the quota is insufficient", pod.Namespace, pod.Name, err)
		}
	}
	w.apply(objects)
	w.countsQuotas()
	for _, pod := range pods {
		eventually(t, "the quota of "+pod.Namespace+" to be in effect", func(ctx context.Context) error {
			return w.admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		})
	}
	w.podIsAdmitted(objects)
}

// countsQuotas sets the status of all quotas, because no controller runs here that does.
func (w *world) countsQuotas() {
	w.Helper()
	var quotas corev1.ResourceQuotaList
	must(w.T, w.admin.List(w.Context(), &quotas))
	for i := range quotas.Items {
		q := &quotas.Items[i]
		q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
		must(w.T, w.admin.Status().Update(w.Context(), q))
	}
}
