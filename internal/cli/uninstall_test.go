// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Uninstall completes even if its output is no longer read, as in
// 'kubectl gate uninstall | head -1': stopping half-way would be the worst outcome. The
// test needs a process of its own, which a signal can end.
func TestUninstallGoesOnWhereNobodyReads(t *testing.T) {
	const at = "NODEGATE_TEST_UNINSTALL_AT"
	if server := os.Getenv(at); server != "" {
		streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
		os.Exit(Execute(t.Context(), streams, []string{"uninstall", "--server", server}))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": []}`)
	}))
	defer server.Close()
	unread, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	unread.Close()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), at+"="+server.URL, "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	command.Stdout, command.Stderr = out, os.Stderr
	if err := command.Run(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
}
