// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A name that neither a gate nor a record has causes a warning that lists the names that
// exist. It is not an error, because the gate may be gone if the release is run again.
func TestReleaseWarnsOfUnknownGates(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1/nodes":
			fmt.Fprint(w, `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n1", "annotations": {"gate.nodegate.dev/cni": "{\"state\":\"Open\"}"}}}]}`)
		case strings.HasSuffix(r.URL.Path, "/nodegates"):
			fmt.Fprint(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": "agent"}}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}`)
		}
	}))
	defer server.Close()
	kubeconfig := file(t, strings.ReplaceAll(kubeconfig, "https://SERVER", server.URL))
	for gates, want := range map[string]string{
		"agnet":     "warning: no node has anything of this gate: gate \"agnet\" not found; the gates are agent, cni\n",
		"agent":     "",
		"cni":       "",
		"cni,agnet": "warning: no node has anything of this gate: gate \"agnet\" not found; the gates are agent, cni\n",
	} {
		_, stderr, status := run(t, "release", "--all", "--dry-run=client", "--kubeconfig="+kubeconfig, "--gate="+gates)
		if stderr != want || status != 0 {
			t.Errorf("--gate=%s: status %d, %q; want 0, %q", gates, status, stderr, want)
		}
	}
}

// If only observing the Lease shows whether a controller is running, the command prints why it
// waits.
func TestReleaseExplainsItsWait(t *testing.T) {
	holder := "a"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1/nodes":
			fmt.Fprint(w, `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n1", "annotations": {"gate.nodegate.dev/cni": "{\"state\":\"Open\"}"}}}]}`)
		case strings.HasSuffix(r.URL.Path, "/leases/nodegate"):
			fmt.Fprintf(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": %q, "leaseDurationSeconds": 2, "renewTime": "1999-01-01T00:00:00.000000Z"}}`, holder)
			holder = "" // the Lease is released
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}`)
		}
	}))
	defer server.Close()
	_, stderr, status := run(t, "release", "--all", "--dry-run=client", "--kubeconfig="+file(t, strings.ReplaceAll(kubeconfig, "https://SERVER", server.URL)))
	if status != 0 || !strings.HasPrefix(stderr, "waiting for 3s to find out whether nodegate is running: ") {
		t.Errorf("status %d, %q", status, stderr)
	}
}
