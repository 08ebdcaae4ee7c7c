// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

// An answer whose reading is interrupted is not printed as an incomplete one, whichever request was
// interrupted. A report does not replace a file then.
func TestInterruptedReading(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(directory, "none"))
	gate := filepath.Join(directory, "gate.yaml")
	file := filepath.Join(directory, "report")
	write := func(name, content string) {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(gate, evictingGate)
	for _, verb := range []string{
		"report --output-file " + file, "why n1", "why pod/web/p", "why deployment/web/d", "timeline n1", "status", "suggest",
		"preview -f " + gate, "preview agent --delete", "lint", "lint -f " + gate,
	} {
		var all requests
		if _, out, stderr := all.run(t, verb, ""); out == "" && !strings.Contains(verb, file) {
			t.Fatalf("%s: %s", verb, stderr)
		}
		write(file, "before")
		for _, one := range all.received {
			var these requests
			status, out, stderr := these.run(t, verb, one)
			if status != exitError || out != "" || !strings.HasPrefix(stderr, "error: interrupted: ") {
				t.Errorf("%s, interrupted at %s: exit status %d:\n%s%s", verb, one, status, out, stderr)
			}
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != "before" {
			t.Errorf("%s: the file contains %q: %v", verb, now, err)
		}
	}
}

// Verbs that change something report it, also if they are interrupted by the last request.
func TestInterruptedWriting(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, c := range []struct{ verb, at, want string }{
		{"open n1 n2 --gate agent --for 1h --reason x", nodesPath + "/n2", "node/n1: gate agent: open until "},
		{"release n1 n2 --force", nodesPath + "/n2", "node/n2 not released: "},
		{"tolerate --all", daemonsPath + "/daemon", "daemonset.apps/kube-system/daemon not changed: "},
	} {
		objects := smallCluster()
		objects[nodesPath+"/n2"] = strings.Replace(heldNode, "name: n1", "name: n2", 1)
		a := newAPIServer(t, objects)
		ctx, interrupt := context.WithCancel(t.Context())
		a.refuse = func(_ http.ResponseWriter, request *http.Request) bool {
			if request.Method != http.MethodPatch || request.URL.Path != c.at {
				return false
			}
			interrupt()
			<-request.Context().Done()
			return true
		}
		var out, errs bytes.Buffer
		status := Execute(ctx, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs}, append(strings.Fields(c.verb), "--server", a.URL))
		if status == exitYes || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit status %d, want %q:\n%s%s", c.verb, status, c.want, &out, &errs)
		}
	}
}

// evictingGate makes a preview read all pods.
const evictingGate = `
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: evicting}
spec:
  nodeSelector: {}
  taint: {key: example.com/b, effect: NoExecute}
  acknowledge: [PodEviction]
  openWhen: [{name: daemon, daemonSet: {namespace: kube-system, name: daemon}}]
`

// requests are the requests of a verb, by path. The first one for a path ends with #1.
type requests struct {
	mu       sync.Mutex
	received []string
}

// number returns the name of a request.
func (r *requests) number(path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 1
	for _, before := range r.received {
		if strings.HasPrefix(before, path+"#") {
			n++
		}
	}
	name := fmt.Sprintf("%s#%d", path, n)
	r.received = append(r.received, name)
	return name
}

// run runs a verb, which is interrupted at this request, after it has received the answers to all
// other requests that it has sent.
func (r *requests) run(t *testing.T, verb, at string) (status int, stdout, stderr string) {
	objects := smallCluster()
	objects["/api/v1/namespaces/web/pods/p"] = "{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: p}}"
	objects["/apis/apps/v1/namespaces/web/deployments/d"] = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: web, name: d}, spec: {template: {spec: {runtimeClassName: c}}}}"
	objects["/apis/node.k8s.io/v1/runtimeclasses/c"] = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: c}, handler: h}"
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var out, errs bytes.Buffer
		c := newConnection(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs})
		server := &apiServer{objects: objects}
		transport := roundTripper(func(request *http.Request) (*http.Response, error) {
			if r.number(request.URL.Path) == at {
				synctest.Wait()
				interrupt()
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			received, answer := request.Clone(ctx), httptest.NewRecorder()
			received.Body = http.NoBody // all verbs here only read
			server.answer(answer, received)
			return answer.Result(), nil
		})
		c.WrapConfigFn = func(config *rest.Config) *rest.Config {
			config.Wrap(func(http.RoundTripper) http.RoundTripper { return transport })
			return config
		}
		status = execute(ctx, c, append(strings.Fields(verb), "--server", "http://api.example"))
		stdout, stderr = out.String(), errs.String()
	})
	return status, stdout, stderr
}

// roundTripper answers requests without a network, for which synctest could not wait.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
