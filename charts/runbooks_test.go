// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// runbooks runs every command of docs/runbooks on an installation of the chart with a gate
// that is closed on a node. Commands that would change something run as a dry run.
func (i *installation) runbooks() {
	i.Helper()
	_, missing := exec.LookPath("jq")
	path := filepath.Dir(clustertest.Kubectl(i)) + string(os.PathListSeparator) + os.Getenv("PATH")
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	must(i.T, err)
	seen := map[string]bool{}
	for _, page := range pages {
		if filepath.Base(page) == "NodegateCertificateExpiring.md" && i.hook == nil {
			continue // without the webhook, nothing on this page exists
		}
		for _, line := range commands(i.T, page) {
			if skip := i.notApplicable(line); skip || seen[line] {
				continue
			}
			seen[line] = true
			if missing != nil && strings.Contains(line, "jq ") {
				i.Run("command with jq", func(t *testing.T) { t.Skipf("%v: %s", missing, line) })
				continue
			}
			command := exec.Command("bash", "-c", "set -o pipefail\n"+i.dryRun(line))
			command.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG="+i.cluster.Kubeconfig(), "KUBECACHEDIR="+os.DevNull)
			if output, err := command.CombinedOutput(); err != nil {
				i.Errorf("%s: %s: %v\n%s", page, line, err, output)
			}
		}
	}
	if len(seen) < 25 {
		i.Errorf("only %d commands were found", len(seen))
	}
}

// notApplicable reports whether a command is for other API servers, or requires a kubectl
// plugin.
func (i *installation) notApplicable(line string) bool {
	if strings.HasPrefix(line, "kubectl gate ") {
		return true
	}
	if i.hook == nil {
		return strings.Contains(line, "mutatingwebhookconfiguration")
	}
	return strings.Contains(line, "mutatingadmissionpolic")
}

// changes are the kubectl commands that change objects.
var changes = regexp.MustCompile(`kubectl (delete|scale|taint|annotate|patch) [^#]*`)

// dryRun rewrites a command of a page so that it changes nothing and succeeds if it is
// valid, even if grep finds nothing.
func (i *installation) dryRun(line string) string {
	line = strings.NewReplacer("<gate>", heldGate, "<node>", "node-1", "<key>", heldKey, "<guard>", admission.RecordsPolicy, "<audit-log>", i.cluster.AuditLog()).Replace(line)
	line, _, _ = strings.Cut(line, " | grep")
	line = strings.NewReplacer("kubectl wait", "kubectl get", " --for=delete --timeout=60s", "").Replace(line) // nothing was deleted
	return changes.ReplaceAllString(line, "$0 --dry-run=server ")
}

// switchOff runs the command of the off switch that contains a text, for the gate heldGate.
func (w *world) switchOff(text string) {
	w.Helper()
	found := 0
	for _, line := range commands(w.T, "../docs/runbooks/README.md") {
		if !strings.Contains(line, text) {
			continue
		}
		found++
		command := exec.CommandContext(w.Context(), "bash", "-c", "set -o pipefail\n"+strings.ReplaceAll(line, "<gate>", heldGate))
		command.Env = append(os.Environ(), "KUBECONFIG="+w.cluster.Kubeconfig(), "KUBECACHEDIR="+os.DevNull,
			"PATH="+filepath.Dir(clustertest.Kubectl(w.T))+string(os.PathListSeparator)+os.Getenv("PATH"))
		if output, err := command.CombinedOutput(); err != nil {
			w.Errorf("%s: %v\n%s", line, err, output)
		}
	}
	if found != 1 {
		w.Errorf("%d commands of the off switch contain %q, want one", found, text)
	}
}

// endsHolds verifies that a command of the off switch changes a gate so that the node agent
// no longer holds pods for it. Without that, the agent holds pods as long as the gate's record
// is closed or from an earlier boot, and without a controller this remains so.
func (w *world) endsHolds() {
	w.Helper()
	ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: heldGate}, Spec: v1alpha1.NodeGateSpec{
		Taint:        v1alpha1.Taint{Key: heldKey, Effect: corev1.TaintEffectNoSchedule},
		OpenWhen:     []v1alpha1.Signal{{Name: "never", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "example.com/never"}}}},
		BypassedPods: v1alpha1.BypassedHold, HoldSeconds: new(int32(60)),
	}}
	must(w.T, w.admin.Create(w.Context(), ng))
	w.switchOff("bypassedPods")
	spec := w.get(heldGate, &v1alpha1.NodeGate{}).(*v1alpha1.NodeGate).Spec
	if spec.BypassedPods != v1alpha1.BypassedReport || spec.HoldSeconds != nil {
		w.Errorf("the gate has bypassedPods %s and holdSeconds %d, want Report and none", spec.BypassedPods, ptr.Deref(spec.HoldSeconds, 0))
	}
	must(w.T, w.admin.Delete(w.Context(), ng))
}

var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// commands returns the commands in the code blocks of a page. An indented line continues
// the command.
func commands(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	for _, block := range shell.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			if strings.HasPrefix(line, " ") && len(all) > 0 {
				all[len(all)-1] += "\n" + strings.TrimSuffix(line, "\n")
			} else if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
	}
	return all
}

// The texts that runbooks search in nodegate's log exist. A text such as "gate" would be in every line.
func TestRunbooksSearchForLoggedText(t *testing.T) {
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	must(t, err)
	program := logStatements(t, "../internal")
	logged, found := regexp.MustCompile(`kubectl logs [^|]*\| grep (?:-E )?'([^']+)'`), 0
	for _, page := range pages {
		for _, line := range commands(t, page) {
			if !strings.Contains(line, "kubectl logs") || !strings.Contains(line, "| grep") {
				continue
			}
			words := logged.FindStringSubmatch(line)
			if words == nil {
				t.Errorf("%s searches for a text that is not quoted: %s", page, line)
				continue
			}
			for text := range strings.SplitSeq(words[1], "|") {
				found++
				if !regexp.MustCompile(`[lL]og\.(Info|Error)\([^\n]*"[^"\n]*` + regexp.QuoteMeta(text)).MatchString(program) {
					t.Errorf("%s searches for %q, which is not logged", page, text)
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d texts are searched in the log", found)
	}
}

// logStatements returns the lines of Go code below a directory that log something, without tests.
func logStatements(t *testing.T, directory string) string {
	t.Helper()
	var code strings.Builder
	must(t, filepath.WalkDir(directory, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "og.Info(") || strings.Contains(line, "og.Error(") {
				code.WriteString(line)
			}
		}
		return err
	}))
	return code.String()
}
