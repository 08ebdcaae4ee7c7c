// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// If the CRD does not end, the error names the gates whose finalizers prevent that.
func TestDefinitionThatStays(t *testing.T) {
	const gates, still = "/apis/nodegate.dev/v1alpha1/nodegates", "customresourcedefinition.apiextensions.k8s.io/nodegates.nodegate.dev still exists: "
	for name, c := range map[string]struct{ gates, want string }{
		"finalizers": {`[{"metadata": {"name": "a", "finalizers": ["example.com/a", "example.com/b"]}}, {"metadata": {"name": "b"}}, {"metadata": {"name": "c", "finalizers": ["example.com/a"]}}]`,
			still + "NodeGates wait for their finalizers (a: example.com/a, example.com/b; c: example.com/a): if no program removes them, remove them with 'kubectl edit nodegate a c', and run the command again"},
		"created again":        {`[{"metadata": {"name": "a"}}]`, still + "find out why (kubectl get nodegates; another client may create them), and run the command again"},
		"gates cannot be read": {"", still + "find out why (kubectl get nodegates; another client may create them), and run the command again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := &rest.Config{Transport: kubetest.Transport(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					switch {
					case r.URL.Path != gates:
						_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "nodegates.nodegate.dev"}}`)
					case c.gates == "":
						http.Error(w, "forbidden", http.StatusForbidden)
					default:
						_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": `+c.gates+`}`)
					}
				})}
				u := &uninstaller{Options: Options{Out: &strings.Builder{}}, objects: metadata.NewForConfigOrDie(config), reported: make(map[object]bool)}
				if err := u.deleteDefinition(t.Context()); err == nil || err.Error() != c.want {
					t.Errorf("error %v, want %s", err, c.want)
				}
			})
		})
	}
}
