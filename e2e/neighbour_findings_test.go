// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// deschedulerPolicy evicts pods that do not tolerate the NoSchedule taints of their node.
const deschedulerPolicy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig: [{name: RemovePodsViolatingNodeTaints}]
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`

// lint and preview read from the API server what the descheduler, Kueue and the scheduler do
// because of a gate's taint.
func TestFindingsAboutNeighbours(t *testing.T) {
	e := newEnv(t)
	nodes := e.registered("n1", "n2")
	for _, k := range nodes {
		k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, corev1.LabelHostname, k.name))
	}
	nodes[1].label("ready")
	k := nodes[0]
	k.bind("evicted", time.Now(), ownedBy("ReplicaSet"))
	k.bind("kept", time.Now(), ownedBy("ReplicaSet"), tolerating(keyA))
	e.waitNextSecond() // the gate must be younger than the node
	e.createNeighbours()
	ng := onRegression(newGate("agent", keyA, byLabel("ready")))
	ng.Spec.ExistingNodes = v1alpha1.ExistingClose
	admin, file := e.cluster.Admin(), e.file(ng)

	e.tells(e.ask(admin, "preview", "-f", file), 1,
		"profile default of the descheduler (ConfigMap "+daemonNamespace+"/descheduler) would evict up to 1 pod on 1 node after the taint is added: ",
		"/evicted; its arguments need excludedTaints: ["+keyA+"]")
	e.must(e.admin.Create(t.Context(), ng))
	e.tells(e.ask(admin, "lint"), 1,
		"warning: descheduler-evicts: gate agent: profile default of the descheduler (ConfigMap "+daemonNamespace+"/descheduler)",
		"warning: kueue-replaces-nodes: gate agent: ", "ResourceFlavor default, which has the topology racks",
		"warning: spread-counts-closed-nodes: gate agent: the topologySpreadConstraints of 1 workload count nodes on which the gate is closed: Deployment "+daemonNamespace+"/spread")
	few := e.may("few-neighbours", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(few, "lint"), 1, "Not checked: cronjobs", "Not checked: statefulsets", "Not checked: resourceflavors")
}

// createNeighbours creates the objects of the neighbours that lint reads.
func (e *env) createNeighbours() {
	e.Helper()
	meta := metav1.ObjectMeta{Namespace: daemonNamespace, Name: "descheduler"}
	descheduler := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "descheduler", Image: "registry.k8s.io/descheduler/descheduler:v0.36.0"}},
		Volumes:       []corev1.Volume{{Name: "policy", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "descheduler"}}}}},
	}
	labels := map[string]string{"app": "spread"}
	spread := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "spread"}}
	spread.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	spread.Spec.Template.Labels = labels
	spread.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web"}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: spread.Spec.Selector,
		}},
	}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"policy.yaml": deschedulerPolicy}},
		&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{ // a suspended one evicts nothing
			Schedule:    "0 0 1 1 *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: descheduler}}},
		}},
		spread,
	} {
		e.must(e.admin.Create(e.Context(), object))
		e.Cleanup(func() { e.must(e.admin.Delete(context.Background(), object)) }) // the test's own context has ended
	}
	e.createOther(map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"topologyName": "racks", "nodeLabels": map[string]any{corev1.LabelHostname: "n1"}},
	})
}
