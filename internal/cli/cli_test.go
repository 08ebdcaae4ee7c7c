// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// run runs 'kubectl gate' with these arguments, and returns its exit status and
// what it printed and said.
func run(t *testing.T, args ...string) (status int, out, err string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var o, e bytes.Buffer
	status = Execute(t.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &o, ErrOut: &e}, args)
	return status, o.String(), e.String()
}

// An API server that knows no NodeGates is told from a node that none concerns;
// but what stands on the node is explained.
func TestWhyWithoutNodeGates(t *testing.T) {
	for _, c := range []struct {
		annotations string
		status      int
		says        string
	}{
		{`{}`, exitError, "error: nodegate is not installed here"},
		{fmt.Sprintf(`{"gate.nodegate.dev/a": %q}`, birth), exitNo, "there is no such NodeGate"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/nodes/n1" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": %s}}`, c.annotations)
		}))
		status, out, err := run(t, "why", "n1", "--server", server.URL)
		server.Close()
		if status != c.status || !strings.Contains(out+err, c.says) {
			t.Errorf("it ended with %d, want %d and %q:\n%s%s", status, c.status, c.says, out, err)
		}
	}
}

// Without a cluster there is help, and one line that says what is missing.
func TestWithoutACluster(t *testing.T) {
	if status, out, _ := run(t, "why", "--help"); status != exitYes || !strings.Contains(out, "kubectl gate why NODE") || !strings.Contains(out, "The exit status is 0") {
		t.Errorf("help ended with %d:\n%s", status, out)
	}
	if status, out, err := run(t, "why", "n1"); status != exitError || out != "" || strings.Count(err, "\n") != 1 {
		t.Errorf("without a kubeconfig it ended with %d:\n%s%s", status, out, err)
	} else {
		t.Log(err)
	}
}

// What a report cannot be made of is refused before anything is asked.
func TestReportRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"report n1", "takes no arguments"},
		{"report --within 0s", "give a time that is longer"},
		{"report --within 3", "missing unit"},
		{"report -o pdf", "choose json, yaml or html"},
		{"timeline", "takes the name of one node, and was given 0"},
		{"timeline n1 -o html", "choose json or yaml"},
	} {
		if status, out, err := run(t, strings.Fields(c.args)...); status != exitError || out != "" || !strings.Contains(err, c.says) || strings.Count(err, "\n") != 1 {
			t.Errorf("%s ended with %d, want one line with %q:\n%s%s", c.args, status, c.says, out, err)
		}
	}
}
