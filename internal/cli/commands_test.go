// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A command that a verb prints, and that a user copies, must not run on another cluster than the verb.
func TestFlagsOfPrintedCommands(t *testing.T) {
	objects := smallCluster()
	objects[leasePath] = fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: nodegate},
		spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: %q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	a := newAPIServer(t, objects)
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "it's mine")
	config := "{apiVersion: v1, kind: Config, current-context: b, clusters: [{name: c, cluster: {server: " + a.URL + "}}], contexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: c}}]}"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	const all = "To run the printed kubectl commands on this cluster, add: "
	quoted := "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	for _, c := range []struct{ args, has, want string }{
		{"why n1", "kubectl gate tolerate", ""},
		{"why n1 --context a", "kubectl gate tolerate", all + "--context a\n"},
		{"why n1 --context a --kubeconfig " + file, "kubectl gate tolerate", all + "--kubeconfig " + quoted + " --context a\n"},
		{"why n1 --cluster c --user none --request-timeout 5s", "", ""},
		{"why n1 --cluster c --server " + a.URL + " -n other", "kubectl gate tolerate", all + "--cluster c --server " + a.URL + "\n"},
		{"why n1 --context a -o json", "kubectl gate tolerate", ""},
		{"why n1 --context a -o yaml", "kubectl gate tolerate", ""},
		{"status --context a", "agent", ""},
		{"report --context a --output-file report.txt", "", ""},
		{"release n1 --context a", "error: ", all + "--context a\n"},
		{"open n1 --gate agent --for 1h --reason x --dry-run=client --context a", "'kubectl gate reset' ends", all + "--context a\n"},
		{"open n1 --gate agent --for 1h --reason x --dry-run=client --context a -o name", "node/n1", ""},
		{"uninstall --dry-run=client --context a", "", ""},
		{"why --context a", "error: kubectl gate why takes", ""},
		{"why n1 --context other", "error: ", ""},
		{"why --help --context a", "kubectl gate why", ""},
		{"convert --help --context a", "kubectl gate convert", ""},
	} {
		var args []string
		for _, arg := range strings.Split(strings.ReplaceAll(c.args, file, "FILE"), " ") {
			args = append(args, strings.ReplaceAll(arg, "FILE", file))
		}
		_, out, stderr := runWith(t, file, args...)
		_, last, _ := strings.Cut(stderr, all)
		if last != "" {
			last = all + last
		}
		if last != c.want || !strings.Contains(out+stderr, c.has) {
			t.Errorf("%s: want %q at the end:\n%s%s", c.args, c.want, out, stderr)
		}
	}
}
