// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// The commands of the quick start work on a cluster as started by 'make cluster-up'.
func TestQuickStart(t *testing.T) {
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	// The page also requires make, which runs this test.
	tools := filepath.Dir(clustertest.Kubectl(t))
	c, err := testcluster.Start(t.Context(), testcluster.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	page, err := os.ReadFile("../docs/quick-start.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "export KUBECONFIG=/tmp/nodegate-cluster-1/" + filepath.Base(c.Kubeconfig()) + "\n"; !strings.Contains(string(page), want) {
		t.Errorf("the page does not show what 'make cluster-up' prints: %s", want)
	}
	output := runPage(t, "docs/quick-start.md", "KUBECONFIG="+c.Kubeconfig(),
		"PATH="+strings.Join([]string{tools, helmDir(t), os.Getenv("PATH")}, string(os.PathListSeparator)))
	for _, want := range []string{
		"nodegate.nodegate.dev/required-daemonsets condition met",
		`[{"effect":"NoSchedule","key":"startup-taint.cluster-autoscaler.kubernetes.io/required-daemonsets","operator":"Exists"}]`,
		`{"state":"`, // the gate's record on the new node
		"All DaemonSets tolerate the taints of the gates that wait for them.",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("the page's commands do not print %q:\n%s", want, output)
		}
	}
	stopwatch := regexp.MustCompile(`(?m)^from 'helm install' to an open node: \d+ seconds$`).FindString(output)
	if stopwatch == "" {
		t.Errorf("the page's stopwatch shows nothing:\n%s", output)
	}
	t.Log(stopwatch)
}

// helmDir returns a directory with a program helm.
func helmDir(t *testing.T) string {
	t.Helper()
	module, err := filepath.Abs("../hack/tools/helm/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nexec go tool -modfile='" + module + "' helm \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "helm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runPage runs the commands of a page in one shell, which stops at the first that fails, and
// returns their output.
func runPage(t *testing.T, page string, environment ...string) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	// There is no time limit: the commands build nodegate, without any output.
	shell := exec.CommandContext(t.Context(), "bash", "-exuo", "pipefail", "-c", commands(t, filepath.Join(root, page)))
	shell.Dir = root
	shell.Env = append(os.Environ(), environment...)
	// Background processes must end with the shell.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) }
	shell.Cancel = end
	shell.WaitDelay = await.Silence
	output, err := shell.CombinedOutput()
	_ = end() // fails if no process is left
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return string(output)
}

// commands returns the shell blocks of a page, in order.
func commands(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var script strings.Builder
	inside := false
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "```sh":
			inside = true
		case line == "```":
			inside = false
		case inside:
			script.WriteString(line + "\n")
		}
	}
	if err := lines.Err(); err != nil || script.Len() == 0 {
		t.Fatalf("%s has no commands (%v)", path, err)
	}
	return script.String()
}
