// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// objectKinds are the kinds in the examples of signals that read objects.
var objectKinds = []string{"AgentStatus", "CertificationResult", "CiliumNode", "NodeFeature"}

// The help of why and its row on the page name everything that why reads for any kind of signal.
func TestPermissionsOfWhy(t *testing.T) {
	objects := smallCluster()
	objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", gatesOfExamples(t)...)
	a := newAPIServer(t, objects)
	requested := a.serveKinds(append(objectKinds, "DeviceTaintRule")...)
	if code, out, err := a.run(t, "why", "n1"); out == "" {
		t.Fatalf("exit status %d: %s", code, err)
	}
	words := map[string]string{
		"nodes": "get the node", "nodegates": "list gates", "pods": "list pods", "daemonsets": "daemonsets", "csinodes": "get csinodes",
		"resourceslices": "resourceslices", "devicetaintrules": "devicetaintrules",
	}
	for _, kind := range objectKinds {
		words[resourceName(kind)] = "objects of the kinds that gates name"
	}
	if got, want := requested(), slices.Sorted(maps.Keys(words)); !slices.Equal(got, want) {
		t.Errorf("why reads %v, want %v", got, want)
	}
	help := strings.Join(strings.Fields(newWhy(newConnection(genericiooptions.NewTestIOStreamsDiscard())).Long), " ")
	for where, text := range map[string]string{
		"the page": permissionsOnPage(t, "`why`"),
		"the help": strings.ReplaceAll(help, "list nodegates.nodegate.dev", "list gates"), // as the page calls them
	} {
		for _, word := range slices.Compact(slices.Sorted(maps.Values(words))) {
			if !strings.Contains(text, word) {
				t.Errorf("%s does not contain %q:\n%s", where, word, text)
			}
		}
	}
}

// The help of why and its row on the page name what it reads for a deployment.
func TestPermissionsOfWhyDeployment(t *testing.T) {
	objects := smallCluster()
	objects["/apis/apps/v1/namespaces/web/deployments/d"] = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: web, name: d}\nspec: {template: {spec: {runtimeClassName: kata, containers: [{name: a}]}}}\n"
	objects["/apis/node.k8s.io/v1/runtimeclasses/kata"] = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n"
	a := newAPIServer(t, objects)
	requested := a.serveKinds()
	if code, out, err := a.run(t, "why", "deployment/web/d"); out == "" {
		t.Fatalf("exit status %d: %s", code, err)
	}
	if got, want := requested(), []string{"daemonsets", "deployments", "nodegates", "nodes", "pods", "runtimeclasses"}; !slices.Equal(got, want) {
		t.Errorf("why reads %v, want %v", got, want)
	}
	help := strings.Join(strings.Fields(newWhy(newConnection(genericiooptions.NewTestIOStreamsDiscard())).Long), " ")
	page := permissionsOnPage(t, "`why pod/…`, `why deployment/…`")
	if !strings.Contains(help, "the deployment, and the RuntimeClass") || !strings.Contains(page, "the deployment and the runtimeclass") {
		t.Errorf("the help or the page does not name the RuntimeClass:\n%s\n%s", help, page)
	}
}

// permissionsOnPage returns the row of a verb in the table of permissions.
func permissionsOnPage(t *testing.T, verb string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubectl-gate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(page), "\n## Required permissions\n")
	_, row, _ := strings.Cut(rights, "\n| "+verb+" |")
	row, _, _ = strings.Cut(row, "\n")
	return row
}

// gatesOfExamples returns a gate for each example of a field of signals. Every field has one.
func gatesOfExamples(t *testing.T) (gates []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var examples map[string]string
	if err := yaml.Unmarshal(text, &examples); err != nil {
		t.Fatal(err)
	}
	for _, field := range slices.Sorted(maps.Keys(examples)) {
		if !strings.HasPrefix(field, "signal.") {
			continue
		}
		name := fmt.Sprintf("g%d", len(gates))
		gates = append(gates, "metadata: {name: "+name+"}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/"+name+", effect: NoSchedule}\n"+
			strings.TrimSuffix("  "+strings.ReplaceAll(examples[field], "\n", "\n  "), "  "))
	}
	return gates
}

// resourceOf finds the resource in the path of a request.
var resourceOf = regexp.MustCompile(`^/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/[^/]+)?/([a-z]+)`)

// resourceName returns the name under which serveKinds serves a kind.
func resourceName(kind string) string { return strings.ToLower(kind) + "s" }

// serveKinds makes discovery return these kinds in every group, and records the resources that
// are requested.
func (a *apiServer) serveKinds(kinds ...string) (requested func() []string) {
	var mu sync.Mutex
	seen := make(map[string]bool)
	served := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}}
	for _, kind := range kinds {
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: resourceName(kind), Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}})
	}
	a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if m := resourceOf.FindStringSubmatch(r.URL.Path); m != nil {
			mu.Lock()
			defer mu.Unlock()
			seen[m[1]] = true
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(served) // fails only if the client is gone
		return true
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(seen))
	}
}
