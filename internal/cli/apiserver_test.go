// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// apiServer is a fake API server with the objects that the verbs read. It records
// writes. Only deletions change something: the object no longer exists.
type apiServer struct {
	*httptest.Server
	// objects are in YAML, by path.
	objects map[string]string
	// refuse, if not nil, handles a request first and reports whether it did.
	refuse func(http.ResponseWriter, *http.Request) bool

	mu     sync.Mutex
	writes []changeRequest
}

// A changeRequest is a request that changes something.
type changeRequest struct {
	method, path string
	// dry specifies whether the request is a dry run.
	dry bool
}

func newAPIServer(t *testing.T, objects map[string]string) *apiServer {
	t.Helper()
	a := &apiServer{objects: objects}
	a.Server = httptest.NewServer(http.HandlerFunc(a.answer))
	t.Cleanup(a.Close)
	return a
}

func (a *apiServer) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if a.refuse != nil && a.refuse(w, r) {
		return
	}
	a.mu.Lock()
	deleted := slices.Contains(a.writes, changeRequest{http.MethodDelete, r.URL.Path, false})
	a.mu.Unlock()
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasSuffix(r.URL.Path, "reviews") {
		a.mu.Lock()
		dry := r.URL.Query().Get("dryRun") == "All" || bytes.Contains(body, []byte(`"dryRun":["All"]`))
		a.writes = append(a.writes, changeRequest{r.Method, r.URL.Path, dry})
		a.mu.Unlock()
	}
	text, known := a.objects[r.URL.Path]
	if !known || deleted {
		refusal(w, http.StatusNotFound, "NotFound", fmt.Sprintf("the server could not find %s", r.URL.Path))
		return
	}
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		refusal(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	// Clients that request metadata only expect PartialObjectMetadata.
	for _, kind := range []string{"PartialObjectMetadataList", "PartialObjectMetadata"} {
		if strings.Contains(r.Header.Get("Accept"), "as="+kind+";") {
			object["apiVersion"], object["kind"] = "meta.k8s.io/v1", kind
			break
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // fails only if the client is gone
}

// forbid makes the server refuse all requests for a path, if it is not empty.
func (a *apiServer) forbid(path string) {
	a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if path == "" || r.URL.Path != path {
			return false
		}
		refusal(w, http.StatusForbidden, "Forbidden", "this is forbidden")
		return true
	}
}

// refusal writes an error response in the form of an API server.
func refusal(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{ // fails only if the client is gone
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
	})
}

// run runs a verb against the server. In its output, the server's address is replaced
// by SERVER.
func (a *apiServer) run(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	code, out, err = run(t, append(args, "--server", a.URL)...)
	named := strings.NewReplacer(a.URL, "SERVER", strings.TrimPrefix(a.URL, "http://"), "SERVER")
	return code, named.Replace(out), named.Replace(err)
}

// written returns the writes since the last call.
func (a *apiServer) written() []changeRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	writes := a.writes
	a.writes = nil
	return writes
}

// heldNode is a node that gate agent holds, also because of an override.
const heldNode = `
apiVersion: v1
kind: Node
metadata:
  name: n1
  uid: uid
  resourceVersion: "1"
  creationTimestamp: "2026-03-01T01:00:00Z"
  annotations:
    gate.nodegate.dev/agent: '{"state":"Closed","reason":"Birth","taint":"example.com/a:NoSchedule","source":"crd"}'
    override.nodegate.dev/agent: '{"state":"Closed","until":"2126-03-01T01:00:00Z","reason":"ticket 7","uid":"uid"}'
spec:
  taints: [{key: example.com/a, effect: NoSchedule}]
`

const agentGate = `
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: agent, creationTimestamp: "2026-03-01T00:00:00Z", generation: 1}
spec:
  nodeSelector: {}
  taint: {key: example.com/a, effect: NoSchedule}
  openWhen: [{name: fit, label: {key: fit}}, {name: daemon, daemonSet: {namespace: kube-system, name: daemon}}]
`

// intolerantDaemon is a DaemonSet that gate agent waits for. It lacks the toleration.
const intolerantDaemon = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: kube-system, name: daemon, uid: uid, resourceVersion: "1"}
spec:
  selector: {matchLabels: {app: daemon}}
  template: {metadata: {labels: {app: daemon}}}
`

const (
	nodesPath = "/api/v1/nodes"
	gatesPath = "/apis/nodegate.dev/v1alpha1/nodegates"
	// daemonsPath is the path of the DaemonSets in the namespace of intolerantDaemon.
	daemonsPath = "/apis/apps/v1/namespaces/kube-system/daemonsets"
)

// list returns a list of objects.
func list(apiVersion, kind string, items ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nmetadata: {resourceVersion: \"1\"}\nitems:", apiVersion, kind)
	if len(items) == 0 {
		b.WriteString(" []")
	}
	for _, item := range items {
		b.WriteString("\n- " + strings.ReplaceAll(strings.TrimSpace(item), "\n", "\n  "))
	}
	return b.String() + "\n"
}

// smallCluster has one node and one gate that holds it. No controller has ever run.
func smallCluster() map[string]string {
	return map[string]string{
		"/api":                                "{kind: APIVersions, versions: [v1]}",
		"/apis":                               "{apiVersion: v1, kind: APIGroupList, groups: []}",
		"/api/v1":                             "{kind: APIResourceList, groupVersion: v1, resources: []}",
		nodesPath:                             list("v1", "NodeList", heldNode),
		nodesPath + "/n1":                     heldNode,
		gatesPath:                             list("nodegate.dev/v1alpha1", "NodeGateList", agentGate),
		gatesPath + "/agent":                  agentGate,
		"/api/v1/pods":                        list("v1", "PodList"),
		"/apis/apps/v1/deployments":           list("apps/v1", "DeploymentList"),
		"/apis/apps/v1/daemonsets":            list("apps/v1", "DaemonSetList"),
		daemonsPath:                           list("apps/v1", "DaemonSetList", intolerantDaemon),
		daemonsPath + "/daemon":               intolerantDaemon,
		"/api/v1/namespaces/kube-system/pods": list("v1", "PodList"),
		"/api/v1/namespaces/nodegate-system":  "{apiVersion: v1, kind: Namespace, metadata: {name: nodegate-system}}",
	}
}
