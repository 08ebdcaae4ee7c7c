// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
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
	policyPath = "/api/v1/namespaces/kube-system/configmaps/policy"
)

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
