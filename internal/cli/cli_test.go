// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/internal/cli/clitest"
)

// run runs 'kubectl gate' with these arguments, and returns its exit status, its
// standard output and its standard error.
func run(t *testing.T, args ...string) (status int, out, err string) {
	t.Helper()
	return runWith(t, filepath.Join(t.TempDir(), "none"), args...)
}

// runWith does the same with a kubeconfig.
func runWith(t *testing.T, kubeconfig string, args ...string) (status int, out, err string) {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig)
	var o, e bytes.Buffer
	status = Execute(t.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &o, ErrOut: &e}, args)
	return status, o.String(), e.String()
}

// If the API server does not serve NodeGates, every verb reports that, instead of reporting
// that no gate applies. Records on nodes are still explained.
func TestWithoutNodeGates(t *testing.T) {
	recorded := fmt.Sprintf(`{"gate.nodegate.dev/a": %q}`, clitest.Birth)
	for _, c := range []struct {
		args, annotations string
		status            int
		want              string
	}{
		{"why n1", `{}`, exitError, "error: nodegate is not installed"},
		{"why n1", recorded, exitNo, "the API server does not serve NodeGates: until it does, the gate's taints and records stay"},
		{"status", recorded, exitNo, "the API server does not serve NodeGates: until it does, the gate's taints and records stay"},
		{"wait n1 --timeout=0", `{}`, exitError, "error: nodegate is not installed"},
		{"wait --all --timeout=30s", `{}`, exitError, "error: nodegate is not installed"},
		{"wait n1 --timeout=0", recorded, exitNo, "waiting for n1 (a)"},
		{"wait n1 --gate b --timeout=0", recorded, exitError, `gate "b" not found; did you mean a?`},
		{"status", `{}`, exitError, "error: nodegate is not installed"},
		{"timeline n1", `{}`, exitError, "error: nodegate is not installed"},
		{"report", `{}`, exitError, "error: nodegate is not installed"},
		{"lint", `{}`, exitError, "error: nodegate is not installed"},
		{"preview g --delete", `{}`, exitError, "error: nodegate is not installed"},
		{"close n1 --gate g --for 1h --reason r", `{}`, exitError, "error: nodegate is not installed"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			node := fmt.Sprintf(`"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "annotations": %s}}`, c.annotations)
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Path == "/api/v1/nodes/n1":
				fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Node", `+node)
			case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("watch") == "":
				kind := `"apiVersion": "v1", "kind": "Node`
				if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList;") {
					kind = `"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata`
				}
				fmt.Fprint(w, "{"+kind+`List", "metadata": {"resourceVersion": "1"}, "items": [{`+kind+`", `+node+`]}`)
			default:
				http.NotFound(w, r)
			}
		}))
		status, out, err := run(t, append(strings.Fields(c.args), "--server", server.URL)...)
		server.Close()
		if status != c.status || !strings.Contains(out+err, c.want) {
			t.Errorf("%s: exit status %d, want %d and %q:\n%s%s", c.args, status, c.status, c.want, out, err)
		}
	}
}

// Without a cluster, help works, and verbs print a one-line error.
func TestWithoutACluster(t *testing.T) {
	if status, out, _ := run(t, "why", "--help"); status != exitYes || !strings.Contains(out, "kubectl gate why NODE") || !strings.Contains(out, "The exit status is 0") {
		t.Errorf("help: exit status %d:\n%s", status, out)
	}
	if status, out, err := run(t, "why", "n1"); status != exitError || out != "" || strings.Count(err, "\n") != 1 {
		t.Errorf("without a kubeconfig: exit status %d:\n%s%s", status, out, err)
	}
}

// Without a kubeconfig, no verb contacts the default address of client-go, even if an
// API server listens there.
func TestWithoutAKubeconfig(t *testing.T) {
	for _, args := range []string{
		"status", "why n1", "timeline n1", "report", "wait n1", "lint", "preview g --delete", "release --all", "uninstall",
		"open n1 --gate g --for 1h --reason r", "reset n1 --gate g",
	} {
		status, out, err := run(t, strings.Fields(args)...)
		if status != exitError || out != "" || !strings.HasPrefix(err, "error: no cluster is configured") || strings.Count(err, "\n") != 1 {
			t.Errorf("%s: exit status %d:\n%s%s", args, status, out, err)
		}
	}
}

// If the kubeconfig does not specify which cluster to use, no verb contacts another one: neither the
// default address of client-go nor, in a pod, the pod's own cluster.
func TestWithoutAContext(t *testing.T) {
	server := newAPIServer(t, smallCluster())
	config := func(more string) string {
		path := filepath.Join(t.TempDir(), "config")
		text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: " + server.URL + "}}, {name: empty, cluster: {}}],\n" +
			"contexts: [{name: good, context: {cluster: c}}, {name: bad, context: {cluster: gone}}, {name: empty, context: {cluster: empty}}]" + more + "}"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ more, flags, want string }{
		{"", "", "error: no context is selected"},
		{"", "--kubeconfig=" + config(""), "error: no context is selected"},
		{"", "--kubeconfig=" + os.DevNull, "error: no context is selected"},
		{"", "--cluster=empty", `error: the kubeconfig contains no API server for context "", cluster "empty"`},
		{"", "--context=bad", `error: the kubeconfig contains no API server for context "bad", cluster "gone"`},
		{", current-context: empty", "", `error: the kubeconfig contains no API server for context "empty", cluster "empty"`},
		{", current-context: other", "", "error: reading the kubeconfig"},
		{"", "--context=good", ""},
		{"", "--cluster=c", ""},
		{"", "--server=" + server.URL, ""},
		{", current-context: good", "", ""},
	} {
		for _, verb := range []string{"status", "release --all --dry-run=client", "uninstall --dry-run=client"} {
			status, out, err := runWith(t, config(c.more), strings.Fields(verb+" "+c.flags)...)
			if failed := status == exitError; failed != (c.want != "") || failed && (out != "" || !strings.HasPrefix(err, c.want) || strings.Count(err, "\n") != 1) {
				t.Errorf("%s %s with a kubeconfig with %q: exit status %d, want %q:\n%s%s", verb, c.flags, c.more, status, c.want, out, err)
			}
		}
	}
}

// Without a kubeconfig and flags, the configuration is client-go's default. Only then does client-go
// use the configuration of the pod in which it runs.
func TestDefaultConfiguration(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	c := newConnection(genericiooptions.NewTestIOStreamsDiscard())
	c.addConnectionFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	got, err := c.ToRESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	want, err := clientcmd.DefaultClientConfig.ClientConfig()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the configuration is\n%+v, want\n%+v: %v", got, want, err)
	}
}

// A request has a timeout, unless --request-timeout disables it.
func TestRequestTimeout(t *testing.T) {
	for arg, want := range map[string]string{"": "15s", "--request-timeout=0": "", "--request-timeout=0s": "", "--request-timeout=100s": "1m40s"} {
		var mu sync.Mutex
		var got string // clients of some kinds do not send it
		server := newAPIServer(t, smallCluster())
		server.refuse = func(_ http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			got = cmp.Or(r.URL.Query().Get("timeout"), got)
			return false
		}
		if status, _, err := server.run(t, append([]string{"why", "n1"}, strings.Fields(arg)...)...); status == exitError {
			t.Errorf("%q: %s", arg, err)
		}
		mu.Lock()
		if got != want {
			t.Errorf("%q: the timeout of the requests is %q, want %q", arg, got, want)
		}
		mu.Unlock()
	}
}

// Every verb rejects an invalid node name with the same message.
func TestParseNodeNames(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"n2 n1", "n1 n2"},
		{"node/n1 n1 nodes/n1 no/n1", "n1"},
		{"node", "node"},
		{"../n1", `error: "../n1" is not a valid node name`},
		{"n1 node/", `error: "node/" is not a valid node name`},
		{"n1/status", `error: "n1/status" is not a valid node name`},
	} {
		names, err := parseNodeNames(strings.Fields(c.args))
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
		if want := "error: \"../n1\" is not a valid node name\n"; status != exitError || out != "" || err != want {
			t.Errorf("%s: exit status %d:\n%s%s", verb[0], status, out, err)
		}
	}
}

// Only network errors are described as an unreachable API server, and not those of a credential
// plugin, for example, whose session has expired.
func TestDescribeRequestError(t *testing.T) {
	get := func(err error) error {
		return fmt.Errorf("reading node: %w", &url.Error{Op: "Get", URL: "https://example.com", Err: err})
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		want string
	}{
		{get(refused), `cannot reach the API server: reading node: Get "https://example.com": dial tcp: connection refused`},
		{get(context.DeadlineExceeded), `cannot reach the API server: reading node: Get "https://example.com": context deadline exceeded`},
		{get(io.EOF), `cannot reach the API server: reading node: Get "https://example.com": EOF`},
		{get(errors.New("getting credentials: exec: executable aws failed")), `reading node: Get "https://example.com": getting credentials: exec: executable aws failed`},
		{fmt.Errorf("reading node: %w", &url.Error{Op: "Get", URL: "x", Err: context.Canceled}), `interrupted: reading node: Get "x": context canceled`},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no")), `nodes "n1" is forbidden: no`},
		{errors.New("nodegate is running"), "nodegate is running"},
	} {
		if got := describeRequestError(c.err).Error(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// A signal ends the context with a cause. It interrupts a request, which does not mean that the API
// server cannot be reached.
func TestInterruptedRequest(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ctx, cancel := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel(errors.New("interrupt signal received"))
		<-r.Context().Done()
	}))
	defer server.Close()
	var errs bytes.Buffer
	status := Execute(ctx, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, ErrOut: &errs}, []string{"why", "n1", "--server", server.URL})
	if status != exitError || !strings.HasPrefix(errs.String(), "error: interrupted: ") {
		t.Errorf("exit status %d:\n%s", status, &errs)
	}
}

// Text output escapes control characters, which could come from the cluster.
func TestNothingSteersTheTerminal(t *testing.T) {
	var b bytes.Buffer
	var o output
	if err := o.print(t.Context(), &b, nil, func() string { return "a \"b\" ✓\n\x1b[2Jc\r\n" }); err != nil || b.String() != "a \"b\" ✓\n\\x1b[2Jc\\r\n" {
		t.Errorf("printed %q: %v", b.String(), err)
	}
}

// Invalid arguments are rejected before any request is sent.
func TestRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"report n1", "takes no arguments"},
		{"uninstall n1", "takes no arguments"},
		{"release n1 --gate=", "--gate contains an empty gate name"},
		{"release n1 --gate=a,,b", "--gate contains an empty gate name"},
		{"wait n1 --gate=", "--gate contains an empty gate name"},
		{"tolerate kube-system/agent --gate=", "--gate contains an empty gate name"},
		{"tolerate --all --gate=", "--gate contains an empty gate name"},
		{"tolerate --gate=a,,b", "--gate contains an empty gate name"},
		{"report --within 0s", "must be greater than 0"},
		{"report --within 3", "missing unit"},
		{"report -o pdf", "use json, yaml or html"},
		{"timeline", "takes exactly one node name, got 0"},
		{"why pod/web frontend", "takes exactly one node name, pod/NAMESPACE/NAME or deployment/NAMESPACE/NAME, got 2"},
		{"timeline n1 -o html", "use json or yaml"},
		{"lint gate.yaml", "to check the gates in a file, use -f"},
	} {
		if status, out, err := run(t, strings.Fields(c.args)...); status != exitError || out != "" || !strings.Contains(err, c.want) || strings.Count(err, "\n") != 1 {
			t.Errorf("%s: exit status %d, want one line with %q:\n%s%s", c.args, status, c.want, out, err)
		}
	}
}
