// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nodegate/nodegate/internal/report"
)

// A report has the name of the cluster that it was read from, if the kubeconfig has a name for it.
func TestReportNamesItsCluster(t *testing.T) {
	a := newAPIServer(t, smallCluster())
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: test}}
- {name: there, context: {cluster: production}}
clusters:
- {name: test, cluster: {server: "%s"}}
- {name: production, cluster: {server: "%s"}}
`, a.URL, a.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, "test"},
		{[]string{"--context=there"}, "production"},
		{[]string{"--cluster=production"}, "production"},
		{[]string{"--server=" + a.URL}, ""}, // which the kubeconfig may not contain
	} {
		status, out, stderr := runWith(t, kubeconfig, append([]string{"report", "-o", "json"}, c.flags...)...)
		var r report.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: exit status %d: %s", c.flags, status, stderr)
		}
		if r.Cluster != c.want {
			t.Errorf("%s: the report is on cluster %q, want %q", c.flags, r.Cluster, c.want)
		}
	}
}

// A report, an explanation or a timeline whose reading is interrupted is not printed as an incomplete one. A report does
// not replace a file then.
func TestInterruptedReading(t *testing.T) {
	for _, c := range []struct {
		verb string
		last int32 // request for pods, which is interrupted
	}{{"report", 1}, {"why n1", 1}, {"timeline n1", 1}, {"timeline n1", 2}} {
		verb := c.verb
		a := newAPIServer(t, smallCluster())
		ctx, interrupt := context.WithCancel(t.Context())
		read := make(chan struct{}, 100)
		var requests atomic.Int32
		a.refuse = func(_ http.ResponseWriter, r *http.Request) bool {
			switch r.URL.Path {
			case "/api/v1/pods":
				if requests.Add(1) < c.last {
					return false
				}
				<-read
				for range 50 { // until the verb has received the answers to its other requests
					if response, err := http.Get(a.URL + "/api"); err == nil {
						response.Body.Close()
					}
				}
				interrupt()
				<-r.Context().Done()
				return true
			case nodesPath, nodesPath + "/n1":
				read <- struct{}{}
			}
			return false
		}
		file := filepath.Join(t.TempDir(), "report")
		if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append(strings.Fields(verb), "--server", a.URL)
		if verb == "report" {
			args = append(args, "--output-file", file)
		}
		var out, errs bytes.Buffer
		status := Execute(ctx, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs}, args)
		if status != exitError || out.Len() > 0 || !strings.HasPrefix(errs.String(), "error: interrupted: ") {
			t.Errorf("%s: exit status %d:\n%s%s", verb, status, &out, &errs)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != "before" {
			t.Errorf("%s: the file contains %q: %v", verb, now, err)
		}
	}
}
