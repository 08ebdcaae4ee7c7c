// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/cluster/clustertest"
)

// runbooks runs every command of docs/runbooks where nodegate runs as the chart has
// it, with a gate and a node that is held; what would change something, as a dry run.
func (i *installation) runbooks() {
	i.Helper()
	_, missing := exec.LookPath("jq")
	path := filepath.Dir(clustertest.Kubectl(i)) + string(os.PathListSeparator) + os.Getenv("PATH")
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	must(i.T, err)
	seen := map[string]bool{}
	for _, page := range pages {
		if filepath.Base(page) == "NodegateCertificateExpiring.md" && i.hook == nil {
			continue // nothing of that is there
		}
		for _, line := range commands(i.T, page) {
			if skip := i.elsewhere(line); skip || seen[line] {
				continue
			}
			seen[line] = true
			if missing != nil && strings.Contains(line, "jq ") {
				i.Run("command with jq", func(t *testing.T) { t.Skipf("%v: %s", missing, line) })
				continue
			}
			command := exec.Command("bash", "-c", "set -o pipefail\n"+i.tame(line))
			command.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG="+i.cluster.Kubeconfig(), "KUBECACHEDIR="+os.DevNull)
			if output, err := command.CombinedOutput(); err != nil {
				i.Errorf("%s: %s: %v\n%s", page, line, err, output)
			}
		}
	}
	if len(seen) < 25 {
		i.Errorf("%d commands were found", len(seen))
	}
}

// elsewhere tells whether a command is for other API servers, or not kubectl's own.
func (i *installation) elsewhere(line string) bool {
	if strings.HasPrefix(line, "kubectl gate ") {
		return true
	}
	if i.hook == nil {
		return strings.Contains(line, "mutatingwebhookconfiguration")
	}
	return strings.Contains(line, "mutatingadmissionpolic")
}

// changes are kubectl's commands that change something.
var changes = regexp.MustCompile(`kubectl (delete|scale|taint|annotate|patch) [^#]*`)

// tame makes a command of a page one that can be run, changes nothing, and succeeds
// if it is right: whether grep finds something is not the question.
func (i *installation) tame(line string) string {
	line = strings.NewReplacer("<gate>", heldGate, "<node>", "node-1", "<key>", heldKey).Replace(line)
	line, _, _ = strings.Cut(line, " | grep")
	return changes.ReplaceAllString(line, "$0 --dry-run=server ")
}

var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// commands are those in the blocks of a page. What is indented goes on.
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

// What runbooks look for in nodegate's log are words of it.
func TestRunbooksGrepForWordsOfTheLog(t *testing.T) {
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	must(t, err)
	sources, err := filepath.Glob("../internal/controller/*.go")
	must(t, err)
	var program strings.Builder
	for _, source := range sources {
		if !strings.HasSuffix(source, "_test.go") {
			text, err := os.ReadFile(source)
			must(t, err)
			program.Write(text)
		}
	}
	logged, found := regexp.MustCompile(`kubectl logs .*\| grep '([^']+)'`), 0
	for _, page := range pages {
		for _, line := range commands(t, page) {
			if words := logged.FindStringSubmatch(line); words != nil {
				found++
				if !regexp.MustCompile(`log\.(Info|Error)\([^\n]*` + regexp.QuoteMeta(words[1])).MatchString(program.String()) {
					t.Errorf("%s looks for %q, which is not logged", page, words[1])
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("%d commands look into the log", found)
	}
}
