// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// An answer whose reading is interrupted is not printed as an incomplete one, whichever request was
// interrupted. A report does not replace a file then.
func TestInterruptedReading(t *testing.T) {
	directory := t.TempDir()
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

// run runs a verb, which is interrupted at this request.
func (r *requests) run(t *testing.T, verb, at string) (status int, stdout, stderr string) {
	objects := smallCluster()
	objects["/api/v1/namespaces/web/pods/p"] = "{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: p}}"
	objects["/apis/apps/v1/namespaces/web/deployments/d"] = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: web, name: d}, spec: {template: {spec: {runtimeClassName: c}}}}"
	objects["/apis/node.k8s.io/v1/runtimeclasses/c"] = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: c}, handler: h}"
	a := newAPIServer(t, objects)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	const other = "/api"
	a.refuse = func(_ http.ResponseWriter, request *http.Request) bool {
		if request.URL.Path == other || r.number(request.URL.Path) != at {
			return false
		}
		for range 50 { // until the verb has received the answers to its other requests
			if response, err := http.Get(a.URL + other); err == nil {
				_, _ = io.Copy(io.Discard, response.Body) // then the connection is used again
				response.Body.Close()
			}
		}
		interrupt()
		<-request.Context().Done()
		return true
	}
	var out, errs bytes.Buffer
	status = Execute(ctx, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs}, append(strings.Fields(verb), "--server", a.URL))
	return status, out.String(), errs.String()
}
