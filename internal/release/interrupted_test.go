// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// An interruption before the first node is changed is reported as such.
func TestInterruptedBeforeTheRelease(t *testing.T) {
	for name, at := range map[string]string{"listing nodes": "/nodes", "listing gates": "/nodegates", "reading the Lease": "/leases/nodegate", "observing the Lease": ""} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			config := &rest.Config{Transport: kubetest.Transport(func(w http.ResponseWriter, r *http.Request) {
				if at != "" && strings.HasSuffix(r.URL.Path, at) {
					cancel()
				}
				w.Header().Set("Content-Type", "application/json")
				switch { // the answers do not fail
				case strings.HasSuffix(r.URL.Path, "/nodes"):
					_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n1", "annotations": {"gate.nodegate.dev/g": "{\"state\":\"Open\"}"}}}]}`)
				case strings.HasSuffix(r.URL.Path, "/leases/nodegate"):
					_, _ = io.WriteString(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "a", "leaseDurationSeconds": 2, "renewTime": "1999-01-01T00:00:00.000000Z"}}`)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			})}
			report, err := Run(ctx, config, Options{Namespace: "here", Waiting: func(string) { cancel() }})
			if want := "stopped before any node was changed; run the command again"; report != nil || err == nil || err.Error() != want {
				t.Errorf("report %v, error %v, want %s", report, err, want)
			}
		})
	}
}
