// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	deschedulerCronJob = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: descheduler, namespace: kube-system}
spec:
  jobTemplate: {spec: {template: {spec: {
    containers: [{name: c, image: "registry.k8s.io/descheduler/descheduler:v0.36.0"}],
    volumes: [{name: v, configMap: {name: policy}}]}}}}
`
	deschedulerPolicy = `
apiVersion: v1
kind: ConfigMap
metadata: {name: policy, namespace: kube-system}
data:
  other: "text"
  policy.yaml: |
    apiVersion: descheduler/v1alpha2
    kind: DeschedulerPolicy
    profiles:
    - name: default
      pluginConfig: [{name: RemovePodsViolatingNodeTaints}]
      plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`
	ownedPod = `
apiVersion: v1
kind: Pod
metadata: {name: shop, namespace: web, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: shop, uid: shop, controller: true}]}
spec: {nodeName: n1, containers: []}
`
	policyPath = "/api/v1/namespaces/kube-system/configmaps/policy"
)

// preview reads the policies of deschedulers if a node would close, and counts the pods that
// they would evict.
func TestPreviewReadsDeschedulerPolicies(t *testing.T) {
	closing := strings.Replace(agentGate, "name: agent,", "name: other,", 1)
	closing = strings.Replace(closing, "spec:\n", "spec:\n  existingNodes: Close\n  budget: {maxReclosed: \"100%\"}\n", 1)
	closing = strings.Replace(closing, "example.com/a", "example.com/other", 1)
	open := strings.Replace(closing, "existingNodes: Close", "existingNodes: Ignore", 1)
	const evicts, gap = "profile default of the descheduler (ConfigMap kube-system/policy) would evict", "Incomplete: reading the policies of deschedulers: "
	for name, c := range map[string]struct {
		gate, policy string
		refuse       string
		suspended    bool
		want, not    string
	}{
		"closes":              {gate: closing, policy: deschedulerPolicy, want: evicts + " up to 1 pod on 1 node", not: gap},
		"closes, no policy":   {gate: closing, policy: strings.Replace(deschedulerPolicy, "[RemovePodsViolatingNodeTaints]", "[PodLifeTime]", 1), want: "would close", not: "descheduler"},
		"is suspended":        {gate: closing, policy: deschedulerPolicy, suspended: true, want: "would close", not: "descheduler"},
		"closes nothing":      {gate: open, policy: deschedulerPolicy, refuse: "/apis/apps/v1/deployments", want: "not members", not: "descheduler"},
		"pods are forbidden":  {gate: closing, policy: deschedulerPolicy, refuse: "/api/v1/pods", want: "because pods could not be read", not: gap},
		"policy is forbidden": {gate: closing, policy: deschedulerPolicy, refuse: policyPath, want: gap + "reading configmap kube-system/policy: ", not: evicts},
		"deployments as well": {gate: closing, policy: deschedulerPolicy, refuse: "/apis/apps/v1/deployments", want: gap + "listing deployments: ", not: "deployments: deployments"},
		"cronjobs as well":    {gate: closing, policy: deschedulerPolicy, refuse: "/apis/batch/v1/cronjobs", want: gap + "listing cronjobs: ", not: evicts},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects["/api/v1/pods"] = list("v1", "PodList", ownedPod)
			objects["/apis/batch/v1/cronjobs"] = list("batch/v1", "CronJobList", strings.Replace(deschedulerCronJob, "spec:", fmt.Sprintf("spec:\n  suspend: %t", c.suspended), 1))
			objects[policyPath] = c.policy
			a := newAPIServer(t, objects)
			a.forbid(c.refuse)
			file := filepath.Join(t.TempDir(), "gate.yaml")
			if err := os.WriteFile(file, []byte(c.gate), 0o600); err != nil {
				t.Fatal(err)
			}
			_, out, err := a.run(t, "preview", "-f", file)
			if !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
				t.Errorf("output does not contain %q, or contains %q:\n%s%s", c.want, c.not, out, err)
			}
		})
	}
}

// lint reads the policies of deschedulers, and of all ConfigMaps only those that they mount.
// What may not be read, and a policy that cannot be parsed, is reported as not checked.
func TestLintReadsDeschedulerPolicies(t *testing.T) {
	const finding, gap = "warning: descheduler-evicts: gate agent: profile default of the descheduler (ConfigMap kube-system/policy)", "Not checked: configmaps of the descheduler: "
	for name, c := range map[string]struct {
		policy string
		refuse bool
		want   string
		not    string
	}{
		"enabled":   {policy: deschedulerPolicy, want: finding, not: gap},
		"excluded":  {policy: strings.Replace(deschedulerPolicy, "Taints}]", "Taints, args: {excludedTaints: [example.com/a]}}]", 1), not: "warning: descheduler-evicts"},
		"forbidden": {policy: deschedulerPolicy, refuse: true, want: gap + "reading configmap kube-system/policy: ", not: "warning: descheduler-evicts"},
		"invalid":   {policy: strings.Replace(deschedulerPolicy, "[{name: RemovePods", "[{name: [", 1), not: "warning: descheduler-evicts"},
		"malformed": {policy: strings.Replace(deschedulerPolicy, "profiles:", "profiles: {}\n    strategies:", 1), want: gap + "configmap kube-system/policy, key policy.yaml: ", not: "warning: descheduler-evicts"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects["/apis/apps/v1/deployments"] = list("apps/v1", "DeploymentList")
			objects["/apis/batch/v1/cronjobs"] = list("batch/v1", "CronJobList", deschedulerCronJob)
			objects[policyPath] = c.policy
			a := newAPIServer(t, objects)
			a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/configmaps") {
					t.Errorf("lists all ConfigMaps: %s", r.URL)
				}
				if !c.refuse || r.URL.Path != policyPath {
					return false
				}
				refusal(w, http.StatusForbidden, "Forbidden", "configmaps is forbidden")
				return true
			}
			_, out, err := a.run(t, "lint")
			if !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
				t.Errorf("output does not contain %q, or contains %q:\n%s%s", c.want, c.not, out, err)
			}
		})
	}
}

// A descheduler that its Deployment or CronJob does not start evicts nothing.
func TestStoppedDeschedulers(t *testing.T) {
	pod := corev1.PodSpec{
		Containers: []corev1.Container{{Image: "descheduler"}},
		Volumes:    []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "policy"}}}}},
	}
	var d appsv1.Deployment
	d.Spec.Template.Spec = pod
	var c batchv1.CronJob
	c.Spec.JobTemplate.Spec.Template.Spec = pod
	for _, stopped := range []bool{false, true} {
		d.Spec.Replicas, c.Spec.Suspend = new(int32(1)), &stopped
		if stopped {
			d.Spec.Replicas = new(int32(0))
		}
		if names := deschedulerConfigMaps([]appsv1.Deployment{d}, nil); len(names) > 0 == stopped {
			t.Errorf("a Deployment, stopped: %t, mounts %v", stopped, names)
		}
		if names := deschedulerConfigMaps(nil, []batchv1.CronJob{c}); len(names) > 0 == stopped {
			t.Errorf("a CronJob, stopped: %t, mounts %v", stopped, names)
		}
	}
}
