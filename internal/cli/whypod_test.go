// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/pending"
)

// An opening counts for the usual time only if it is the first of its node: no pod was bound
// to the node before.
func TestUsualTimeOfPods(t *testing.T) {
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	node := fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata:
  name: n2
  uid: other
  creationTimestamp: %q
  annotations:
    gate.nodegate.dev/agent: '{"state":"Open","since":%q,"reason":"SignalsHold","taint":"example.com/a:NoSchedule","source":"crd"}'
`, ago(10*time.Hour), ago(time.Minute))
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: default, name: p, uid: p}\nspec: {containers: [{name: a}]%s}\n"
	bound := func(node string, since time.Duration) []string {
		return []string{fmt.Sprintf(pod, ", nodeName: "+node) +
			fmt.Sprintf("status: {conditions: [{type: PodScheduled, status: \"True\", lastTransitionTime: %q}]}", ago(since))}
	}
	for name, c := range map[string]struct {
		pods  []string
		usual bool
	}{
		"the first opening":    {nil, true},
		"opened after a pod":   {bound("n2", 9*time.Hour), false},
		"the pod came later":   {bound("n2", time.Second), true},
		"a pod on another one": {bound("n1", 9*time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects[nodesPath] = list("v1", "NodeList", heldNode+"status: {allocatable: {pods: 110}}", node)
			objects["/api/v1/pods"] = list("v1", "PodList", c.pods...)
			objects["/api/v1/namespaces/default/pods/p"] = fmt.Sprintf(pod, "")
			code, out, err := newAPIServer(t, objects).run(t, "why", "pod/default/p", "-o", "json")
			var got pending.Explanation
			if code != exitNo || json.Unmarshal([]byte(out), &got) != nil || len(got.Gates) != 1 {
				t.Fatalf("exit status %d:\n%s%s", code, out, err)
			}
			if usual := got.Gates[0].Usually; (usual != nil) != c.usual {
				t.Errorf("usually %+v, expected one: %v", usual, c.usual)
			}
		})
	}
}

// The error for an object of another kind, whose name looks like that of a pod, says what to use.
func TestWhyOtherKinds(t *testing.T) {
	for _, arg := range []string{"sts/web/db", "daemonsets/kube-system/agent", "node/web/n1"} {
		status, out, err := run(t, "why", arg, "--server", "http://127.0.0.1:1")
		want := fmt.Sprintf("error: %q is neither a node, pod/NAMESPACE/NAME nor deployment/NAMESPACE/NAME: for objects of other kinds, specify one of their pods\n", arg)
		if status != exitError || out != "" || err != want {
			t.Errorf("%s: exit status %d:\n%s%s", arg, status, out, err)
		}
	}
}

// Without NodeGates, the records of gates from files are explained.
func TestWhyPodWithoutNodeGates(t *testing.T) {
	bare, _, _ := strings.Cut(heldNode, "  annotations:")
	const ready = "status: {allocatable: {pods: 110}}"
	for _, c := range []struct {
		node   string
		status int
		want   string
	}{
		{strings.Replace(heldNode, `"crd"`, `"files"`, 1) + ready, exitNo, "agent"},
		{bare + ready, exitError, "error: nodegate is not installed, or reads its gates from files: the API server does not serve NodeGates, and no node has a gate record\n"},
	} {
		objects := smallCluster()
		delete(objects, gatesPath)
		objects[nodesPath] = list("v1", "NodeList", c.node)
		objects["/api/v1/namespaces/web/pods/p"] = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: web, name: p, uid: p}\nspec: {containers: [{name: a}]}\n"
		if status, out, err := newAPIServer(t, objects).run(t, "why", "pod/web/p"); status != c.status || !strings.Contains(out+err, c.want) {
			t.Errorf("exit status %d, want %d and %q:\n%s%s", status, c.status, c.want, out, err)
		}
	}
}

// A pod as a Deployment creates it gets what its RuntimeClass requires, as from the API server.
func TestWhyDeploymentWithRuntimeClass(t *testing.T) {
	const classPath = "/apis/node.k8s.io/v1/runtimeclasses/kata"
	const rejected = "The API server rejects the pods of deployment web/d, and no gate is the cause: "
	for name, c := range map[string]struct {
		class, template, taint string
		status                 int
		want                   string
	}{
		"no requirements":            {"", "", "", exitNo, "it could run on 1 of these"},
		"a selector that matches":    {"scheduling: {nodeSelector: {disk: ssd}}", "", "", exitNo, "it could run on 1 of these"},
		"a selector that does not":   {"scheduling: {nodeSelector: {kata: present}}", "nodeSelector: {disk: ssd}, ", "", exitYes, "the pod's node selector or affinity does not match"},
		"a selector of the template": {"scheduling: {nodeSelector: {disk: ssd}}", "nodeSelector: {kata: present}, ", "", exitYes, "the pod's node selector or affinity does not match"},
		"a contradicting selector": {"scheduling: {nodeSelector: {disk: hdd}}", "nodeSelector: {disk: ssd}, ", "", exitYes,
			rejected + "RuntimeClass kata requires nodes with label disk=hdd, and the pod disk=ssd.\n"},
		"tolerations":              {"scheduling: {tolerations: [{key: example.com/a, operator: Exists}]}", "", "", exitYes, "It could run on 1 node now"},
		"toleration of a taint":    {"scheduling: {tolerations: [{key: sandbox, operator: Exists}]}", "", "sandbox", exitNo, "it could run on 1 of these"},
		"overhead":                 {"overhead: {podFixed: {cpu: 500m}}", "", "", exitYes, "insufficient cpu"},
		"small overhead":           {"overhead: {podFixed: {cpu: 100m}}", "", "", exitNo, "it could run on 1 of these"},
		"the same overhead":        {"overhead: {podFixed: {cpu: 100m}}", "overhead: {cpu: \"0.1\"}, ", "", exitNo, "it could run on 1 of these"},
		"a different overhead":     {"overhead: {podFixed: {cpu: 100m}}", "overhead: {cpu: 200m}, ", "", exitYes, rejected + "the pod's overhead differs from that of RuntimeClass kata.\n"},
		"overhead without a class": {"", "overhead: {cpu: 200m}, ", "", exitYes, rejected + "the pod has an overhead, and RuntimeClass kata has none.\n"},
		"overhead and no class":    {"unnamed", "overhead: {cpu: 200m}, ", "", exitYes, rejected + "the pod has an overhead, but no RuntimeClass.\n"},
		"it is missing":            {"none", "", "", exitYes, rejected + "RuntimeClass kata does not exist.\n"},
		"it is forbidden":          {"forbidden", "", "", exitNo, "Incomplete: reading RuntimeClass kata: "},
		"its tolerations decide, and it is forbidden": {"forbidden", "", "sandbox", exitError, "Incomplete: reading RuntimeClass kata: "},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			node := strings.Replace(heldNode, "  uid:", "  labels: {disk: ssd}\n  uid:", 1) + "status: {allocatable: {cpu: 1200m, pods: 110}}"
			if c.taint != "" {
				node = strings.Replace(node, "taints: [", "taints: [{key: "+c.taint+", effect: NoSchedule}, ", 1)
			}
			objects[nodesPath] = list("v1", "NodeList", node)
			objects["/apis/apps/v1/namespaces/web/deployments/d"] = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: web, name: d}\n" +
				"spec: {template: {spec: {runtimeClassName: kata, " + c.template + "containers: [{name: a, resources: {requests: {cpu: 1}}}]}}}\n"
			if c.class != "none" && c.class != "forbidden" {
				objects[classPath] = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n" + c.class + "\n"
			}
			if c.class == "unnamed" {
				const path = "/apis/apps/v1/namespaces/web/deployments/d"
				objects[path] = strings.Replace(objects[path], "runtimeClassName: kata, ", "", 1)
			}
			server := newAPIServer(t, objects)
			if c.class == "forbidden" {
				server.forbid(classPath)
			}
			status, out, err := server.run(t, "why", "deployment/web/d")
			if status != c.status || !strings.Contains(out, c.want) || (status == exitError) != strings.Contains(err, errMayKeepOff.Error()) {
				t.Errorf("exit status %d, want %d and %q:\n%s%s", status, c.status, c.want, out, err)
			}
			if strings.HasPrefix(c.want, rejected) && !strings.HasPrefix(out, c.want) {
				t.Errorf("the first sentence is not %q:\n%s", c.want, out)
			}
		})
	}
}

// A gate with the taint of a deleted gate takes over its record, and keeps the pod off the node.
func TestWhyPodRenamedGate(t *testing.T) {
	objects := smallCluster()
	objects[nodesPath] = list("v1", "NodeList", strings.Replace(heldNode, "gate.nodegate.dev/agent", "gate.nodegate.dev/former", 1)+"status: {allocatable: {pods: 110}}")
	objects["/api/v1/namespaces/web/pods/p"] = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: web, name: p, uid: p}\nspec: {containers: [{name: a}]}\n"
	code, out, err := newAPIServer(t, objects).run(t, "why", "pod/web/p")
	if code != exitNo || !strings.Contains(out, "\nagent: closed on 1 node;") || strings.Contains(out, "former") {
		t.Errorf("exit status %d:\n%s%s", code, out, err)
	}
}
