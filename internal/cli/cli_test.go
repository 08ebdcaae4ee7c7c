// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// An API server that knows no NodeGates is told from a node that none concerns, by
// every verb; but what stands on the node is explained.
func TestWithoutNodeGates(t *testing.T) {
	recorded := fmt.Sprintf(`{"gate.nodegate.dev/a": %q}`, birth)
	for _, c := range []struct {
		args, annotations string
		status            int
		says              string
	}{
		{"why n1", `{}`, exitError, "error: nodegate is not installed here"},
		{"why n1", recorded, exitNo, "there is no such NodeGate"},
		{"wait n1 --timeout=0", `{}`, exitError, "error: nodegate is not installed here"},
		{"wait --all --timeout=30s", `{}`, exitError, "error: nodegate is not installed here"},
		{"wait n1 --timeout=0", recorded, exitNo, "waiting for n1 (a)"},
		{"wait n1 --gate b --timeout=0", recorded, exitError, `there is no gate "b"; did you mean a?`},
		{"status", `{}`, exitError, "error: nodegate is not installed here"},
		{"timeline n1", `{}`, exitError, "error: nodegate is not installed here"},
		{"report", `{}`, exitError, "error: nodegate is not installed here"},
		{"lint", `{}`, exitError, "error: nodegate is not installed here"},
		{"preview g --delete", `{}`, exitError, "error: nodegate is not installed here"},
		{"close n1 --gate g --for 1h --reason r", `{}`, exitError, "error: nodegate is not installed here"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			node := fmt.Sprintf(`"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "annotations": %s}}`, c.annotations)
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Path == "/api/v1/nodes/n1":
				fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Node", `+node)
			case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("watch") == "":
				fmt.Fprint(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"}, "items": [
					{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", `+node+`]}`)
			default:
				http.NotFound(w, r)
			}
		}))
		status, out, err := run(t, append(strings.Fields(c.args), "--server", server.URL)...)
		server.Close()
		if status != c.status || !strings.Contains(out+err, c.says) {
			t.Errorf("%s ended with %d, want %d and %q:\n%s%s", c.args, status, c.status, c.says, out, err)
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
	}
}

// Without a kubeconfig it is not asked for a cluster where clients of Kubernetes
// look by themselves, whatever may answer there.
func TestWithoutAKubeconfig(t *testing.T) {
	for _, args := range []string{
		"status", "why n1", "timeline n1", "report", "wait n1", "lint", "preview g --delete", "release --all", "uninstall",
		"open n1 --gate g --for 1h --reason r", "reset n1 --gate g",
	} {
		status, out, err := run(t, strings.Fields(args)...)
		if status != exitError || out != "" || !strings.HasPrefix(err, "error: which cluster is meant is not known") || strings.Count(err, "\n") != 1 {
			t.Errorf("%s ended with %d:\n%s%s", args, status, out, err)
		}
	}
}

// What cannot be the name of a node is refused by every verb in the same way.
func TestNodesOf(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"n2 n1", "n1 n2"},
		{"node/n1 n1 nodes/n1", "n1"},
		{"../n1", `error: "../n1" is no name of a node`},
		{"n1 node/", `error: "node/" is no name of a node`},
		{"n1/status", `error: "n1/status" is no name of a node`},
	} {
		names, err := nodesOf(strings.Fields(c.args))
		got := strings.Join(names, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
	for _, verb := range [][]string{{"why"}, {"timeline"}, {"wait"}, {"release"}, {"reset", "--gate", "g"}} {
		status, out, err := run(t, append(verb, "../n1", "--server", "http://127.0.0.1:1")...)
		if want := "error: \"../n1\" is no name of a node\n"; status != exitError || out != "" || err != want {
			t.Errorf("%s ended with %d:\n%s%s", verb[0], status, out, err)
		}
	}
}

// Only where nobody answers is that said.
func TestUnanswered(t *testing.T) {
	away := &url.Error{Op: "Get", URL: "https://example.com", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("reading node: %w", away), `the API server does not answer: reading node: Get "https://example.com": connection refused`},
		{fmt.Errorf("reading node: %w", &url.Error{Op: "Get", URL: "x", Err: context.Canceled}), `interrupted: reading node: Get "x": context canceled`},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no")), `nodes "n1" is forbidden: no`},
		{errors.New("nodegate is running"), "nodegate is running"},
	} {
		if got := unanswered(c.err).Error(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// Several errors are told apart in their one line.
func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("one:\n  two"), errors.New("a \x1b[2J"))
	if got, want := oneLine(err), `one: two; a \x1b[2J`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Nothing that a cluster tells steers the terminal on which it is printed; programs
// are told all of it.
func TestNothingSteersTheTerminal(t *testing.T) {
	var b bytes.Buffer
	var o output
	if err := o.print(&b, nil, func() string { return "a \"b\" ✓\n\x1b[2Jc\r\n" }); err != nil || b.String() != "a \"b\" ✓\n\\x1b[2Jc\\r\n" {
		t.Errorf("it printed %q: %v", b.String(), err)
	}
}

// What cannot be meant is refused before anything is asked.
func TestRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"report n1", "takes no arguments"},
		{"uninstall n1", "takes no arguments"},
		{"release n1 --gate=", "--gate names no gate"},
		{"release n1 --gate=a,,b", "--gate names no gate"},
		{"wait n1 --gate=", "--gate names no gate"},
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
