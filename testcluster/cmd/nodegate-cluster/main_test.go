// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// mainVariable makes the test binary the command itself.
const mainVariable = "NODEGATE_CLUSTER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// program returns the command with the given arguments, and a buffer for its
// stderr.
func program(arguments ...string) (*exec.Cmd, *bytes.Buffer) {
	var stderr bytes.Buffer
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), mainVariable+"=1")
	command.Stderr = &stderr
	return command, &stderr
}

func TestUpUntilInterrupted(t *testing.T) {
	clustertest.SkipIfShort(t)
	dir := filepath.Join(t.TempDir(), "a user's directory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	up, stderr := program("up", "--components", "kube-scheduler,kube-controller-manager", "--audit")
	stdout, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Process.Kill() }) // it may have ended
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no kubeconfig: %v; stderr: %s", err, stderr)
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
	if err := up.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v; stderr: %s", err, stderr)
	}
	_, export, _ := strings.Cut(stderr.String(), "Use it with:")
	export, _, _ = strings.Cut(export, "\n")
	if got, err := exec.Command("sh", "-c", export+"\nprintenv KUBECONFIG").CombinedOutput(); err != nil || string(got) != line {
		t.Errorf("%q sets KUBECONFIG to %s (%v), want %s", export, got, err, line)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := client.Discovery().RESTClient().Get().AbsPath("/healthz").Do(t.Context()).Error(); err == nil {
		t.Error("the API server is still running")
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, test := range []struct{ arguments, want string }{
		{"", "no command given"},
		{"down", `unknown command "down"`},
		{"up --what", "flag provided but not defined: -what"},
		{"up now", `unexpected argument "now"`},
		{"up --port x", `invalid value "x"`},
		{"up --components kubelet", `unknown component "kubelet"`},
		{"up --kubernetes-version 1.1", `unknown Kubernetes version "1.1"`},
	} {
		bad, stderr := program(strings.Fields(test.arguments)...)
		err := bad.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%q: %v, want exit status 1", test.arguments, err)
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, test.want) {
			t.Errorf("%q: %q, want %q", test.arguments, last, test.want)
		}
		if test.arguments != "" && len(lines) != 1 {
			t.Errorf("%q: more than one line: %s", test.arguments, stderr)
		}
	}
}
