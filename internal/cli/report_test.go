// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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

// A file has the content that its name promises, and - is standard output.
func TestReportFile(t *testing.T) {
	a := newAPIServer(t, smallCluster())
	t.Chdir(t.TempDir())
	_, want, _ := a.run(t, "report")
	if status, out, stderr := a.run(t, "report", "--output-file", "-"); status != exitYes || out != want || want == "" {
		t.Errorf("exit status %d:\n%s%s", status, out, stderr)
	}
	for _, file := range []string{"report.html", "report.HTM"} {
		status, _, stderr := a.run(t, "report", "--output-file", file)
		if want := "error: " + file + " would not contain HTML: add -o html, or use another extension\n"; status != exitError || stderr != want {
			t.Errorf("exit status %d, want the error %q:\n%s", status, want, stderr)
		}
		if status, out, stderr := a.run(t, "report", "-o", "html", "--output-file", file); status != exitYes || out != "" {
			t.Errorf("exit status %d:\n%s%s", status, out, stderr)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("the files are %v: %v", entries, err)
	}
}
