// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
)

// A missing or expired Lease proves that nodegate is not running only if it is in nodegate's
// namespace.
func TestSurveyFindsTheInstallation(t *testing.T) {
	const bindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodegate"
	const leasePath = "/apis/coordination.k8s.io/v1/namespaces/nodegate-system/leases/nodegate"
	const forbidden = "forbidden"
	binding := func(namespace string) string {
		return `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "subjects": [{"kind": "ServiceAccount", "namespace": "` + namespace + `"}]}`
	}
	lease := func(renewed time.Time) string {
		return `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "a", "leaseDurationSeconds": 2, "renewTime": "` + renewed.UTC().Format("2006-01-02T15:04:05.000000Z") + `"}}`
	}
	now := time.Now()
	stale := lease(now.Add(-time.Hour))
	always := map[string]string{
		"/apis/nodegate.dev/v1alpha1/nodegates": `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": "g"}}]}`,
	}
	const elsewhere = "nodegate is installed in namespace platform, not in nodegate-system"
	const refused = elsewhere + ", and may be running there: use --namespace=platform, or --force to release the nodes anyway"
	for name, c := range map[string]struct {
		objects map[string]string
		force   bool
		// refusal is the expected error, without what follows "…", and remark a part of the remarks.
		refusal, remark string
	}{
		"not installed":                    {remark: "nodegate is not running"},
		"without a Lease":                  {objects: map[string]string{bindingPath: binding("nodegate-system")}, remark: "nodegate is not running"},
		"elsewhere":                        {objects: map[string]string{bindingPath: binding("platform")}, refusal: refused},
		"elsewhere, forced":                {objects: map[string]string{bindingPath: binding("platform")}, force: true, remark: "it is unknown whether nodegate is running (" + elsewhere},
		"elsewhere, and a Lease was left":  {objects: map[string]string{bindingPath: binding("platform"), leasePath: stale}, refusal: refused},
		"binding forbidden":                {objects: map[string]string{bindingPath: forbidden}, refusal: "it is unknown whether gates would close on these nodes again: determining nodegate's namespace: …"},
		"binding forbidden, Lease expired": {objects: map[string]string{bindingPath: forbidden, leasePath: stale}, remark: "nodegate is not running"},
		"binding forbidden, Lease held":    {objects: map[string]string{bindingPath: forbidden, leasePath: lease(now)}, refusal: "nodegate is running and …"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch object := cmp.Or(c.objects[r.URL.Path], always[r.URL.Path]); object {
				case "":
					http.NotFound(w, r)
				case forbidden:
					http.Error(w, forbidden, http.StatusForbidden)
				default:
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, object) // fails only if the client is gone
				}
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			s, err := survey(t.Context(), config, metadata.NewForConfigOrDie(config), "nodegate-system")
			if err != nil {
				t.Fatal(err)
			}
			remarks, refusal := s.judge([]*gate.Node{closedNode("n1")}, &Options{Force: c.force})
			text := strings.Join(remarks, "\n")
			got := ""
			if refusal != nil {
				got = refusal.Error()
			}
			beginning, more := strings.CutSuffix(c.refusal, "…")
			if got != c.refusal && (!more || !strings.HasPrefix(got, beginning)) || !strings.Contains(text, c.remark) {
				t.Errorf("error: %v; remarks: %s", refusal, text)
			}
		})
	}
}
