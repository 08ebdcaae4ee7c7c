// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/internal/suggest"
)

// devicePlugin returns a device plugin that runs on nodes of some instance types.
func devicePlugin(name string, types int) string {
	values := make([]string, types)
	for i := range values {
		values[i] = fmt.Sprintf("t%d.large", i)
	}
	return `
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: kube-system, name: ` + name + `, uid: ` + name + `, resourceVersion: "1"}
spec:
  selector: {matchLabels: {app: ` + name + `}}
  template:
    metadata: {labels: {app: ` + name + `}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: example.com/main, volumeMounts: [{name: host, mountPath: /host}]}]
      volumes: [{name: host, hostPath: {path: /var/lib/kubelet/device-plugins}}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
        {key: node.kubernetes.io/instance-type, operator: In, values: [` + strings.Join(values, ", ") + `]}]}]}}}
`
}

// A DaemonSet that runs on nodes of more instance types than a gate's nodeSelector can list does
// not prevent suggestions.
func TestSuggestWithManyInstanceTypes(t *testing.T) {
	objects := smallCluster()
	objects["/apis/apps/v1/daemonsets"] = list("apps/v1", "DaemonSetList", devicePlugin("fabric", 65), devicePlugin("fpga", 64))
	a := newAPIServer(t, objects)
	code, out, stderr := a.run(t, "suggest")
	if code != exitNo || !strings.Contains(out, "kube-system/fabric") || !strings.Contains(out, "kube-system/fpga") || strings.Contains(out, "reject") {
		t.Errorf("exit status %d:\n%s%s", code, out, stderr)
	}
	code, out, stderr = a.run(t, "suggest", "-o", "gates")
	gates, err := gatefile.Declared("gates.yaml", []byte(out))
	if code != exitNo || err != nil || len(gates) != 2 {
		t.Errorf("exit status %d, %d gates, error %v:\n%s%s", code, len(gates), err, out, stderr)
	}
}

// The preview of a label compares the cluster with the one after the label has been added: the gate
// would close on a node on which it is open. If it would evict pods, they are read.
func TestPreviewOfASuggestedLabel(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: web, name: shop, uid: shop}\nspec: {nodeName: n1, containers: [{name: main, image: example.com/shop}]}\n"
	const changes = "1 of the 1 existing node that the gate selects would change"
	for name, c := range map[string]struct {
		effect, forbidden string
		args, want        []string
		not               string
	}{
		"NoSchedule": {effect: "NoSchedule", want: []string{changes}, not: "evictions"},
		"NoExecute":  {effect: "NoExecute", want: []string{changes, "1 pod (0 of DaemonSets) on 1 node would be deleted", "web/shop"}, not: "Incomplete: previews"},
		"pods are forbidden": {effect: "NoExecute", forbidden: "/api/v1/pods",
			want: []string{changes, "unknown, because pods were not read", "Incomplete: Pods: ", "; missing: which pods gates would evict, and which nodes are idle."}},
		"pods are not read": {effect: "NoExecute", args: []string{"--pods=false"},
			want: []string{changes, "unknown, because pods were not read"}, not: "could not be read"},
	} {
		byLabel := strings.Replace(agentGate[:strings.Index(agentGate, "  openWhen")], "NoSchedule", c.effect, 1) +
			"  reclosePolicy: OnRegression\n  openWhen: [{name: required, daemonSets: {namespaces: [kube-system], selector: {matchLabels: {wait: 'true'}}}}]\n"
		node := heldNode[:strings.Index(heldNode, "    gate.")] +
			"    gate.nodegate.dev/agent: '{\"state\":\"Open\",\"reason\":\"SignalsHold\",\"since\":\"2026-03-01T01:10:00Z\",\"taint\":\"example.com/a:" + c.effect + "\",\"source\":\"crd\"}'\n"
		plugin := devicePlugin("fpga", 1)
		plugin = plugin[:strings.Index(plugin, "      affinity:")]
		objects := smallCluster()
		objects[nodesPath] = list("v1", "NodeList", node)
		objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", byLabel)
		objects[daemonsPath] = list("apps/v1", "DaemonSetList", plugin)
		objects["/apis/apps/v1/daemonsets"] = objects[daemonsPath]
		objects["/api/v1/pods"] = list("v1", "PodList", pod)
		a := newAPIServer(t, objects)
		a.forbid(c.forbidden)
		code, out, stderr := a.run(t, append([]string{"suggest"}, c.args...)...)
		if code != exitNo || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: exit status %d:\n%s%s", name, code, out, stderr)
		}
		for _, want := range append(c.want, "the label wait=true, for which gate agent waits") {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the output lacks %q:\n%s%s", name, want, out, stderr)
			}
		}
	}
}

// The exit status is 0 only if everything was read that can show that pods need a DaemonSet.
func TestSuggestExitStatus(t *testing.T) {
	const needed, policies = "/apis/apps/v1/daemonsets", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/nodegate-confinement"
	for name, c := range map[string]struct {
		daemons, refuse, flag string
		want                  int
		says                  string
	}{
		"everything was read":  {"", "", "", exitYes, ""},
		"without nodes":        {"", nodesPath, "", exitError, "error: there are no suggestions, but Nodes could not be read, so some may be missing\n"},
		"without nodes, gates": {"", nodesPath, "--output=gates", exitError, "error: there are no suggestions, but Nodes could not be read, so some may be missing\n"},
		"without pods":         {"", "/api/v1/pods", "", exitError, "error: there are no suggestions, but Pods could not be read, so some may be missing\n"},
		"pods are not wanted":  {"", "/api/v1/pods", "--pods=false", exitYes, ""},
		"without CSIDrivers":   {"", "/apis/storage.k8s.io/v1/csidrivers", "", exitYes, ""},
		"without the policy":   {"", policies, "", exitYes, ""},
		"there are some":       {devicePlugin("fpga", 1), nodesPath, "", exitNo, "To run the printed kubectl commands on this cluster, add: --server SERVER\n"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects[nodesPath] = list("v1", "NodeList", strings.Replace(heldNode, "2026-03-01T01:00:00Z", time.Now().UTC().Format(time.RFC3339), 1))
			if objects[needed] = list("apps/v1", "DaemonSetList", intolerantDaemon); c.daemons != "" {
				objects[needed] = list("apps/v1", "DaemonSetList", intolerantDaemon, c.daemons)
			}
			server := newAPIServer(t, objects)
			server.forbid(c.refuse)
			code, out, err := server.run(t, append([]string{"suggest"}, strings.Fields(c.flag)...)...)
			if code != c.want || err != c.says {
				t.Errorf("exit status %d, want %d with %q:\n%s%s", code, c.want, c.says, out, err)
			}
			if n := strings.Count(out, "is forbidden"); n > 1 {
				t.Errorf("the same read error is shown %d times:\n%s", n, out)
			}
		})
	}
}

// A suggested gate that the API server would reject is reported, and does not prevent the previews
// of other suggestions.
func TestSuggestedGateIsInvalid(t *testing.T) {
	of := func(name, manifest string) suggest.Suggestion {
		return suggest.Suggestion{DaemonSets: []string{"kube-system/" + name}, Use: suggest.UseNodeGate, Gate: name, Manifest: manifest}
	}
	bad := strings.ReplaceAll(strings.Replace(agentGate, "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b/c}}", 1), "name: agent", "name: bad")
	r := &suggest.Report{Suggestions: []suggest.Suggestion{of("bad", bad), of("agent", agentGate)}}
	gates := suggestedGates(&suggest.World{}, r)
	if len(gates) != 1 || gates[0].Name != "agent" {
		t.Errorf("the gates are %+v", gates)
	}
	if len(r.Unread) != 1 || !strings.Contains(r.Unread[0].What, "bad") || !strings.Contains(r.Unread[0].Error, "label value") {
		t.Errorf("the gaps are %+v", r.Unread)
	}
	if text := r.Gates(true); strings.Count(text, "# Note: the API server would reject") != 1 {
		t.Errorf("the gates are:\n%s", text)
	}
}
