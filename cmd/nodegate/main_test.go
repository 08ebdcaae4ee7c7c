// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// asNodegate is an environment variable that makes this test binary run as nodegate.
const asNodegate = "TEST_AS_NODEGATE"

func TestMain(m *testing.M) {
	if os.Getenv(asNodegate) != "" {
		main()
		os.Exit(0)
	}
	clustertest.InParallel(5) // those that run in parallel wait
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
}

// nodegate returns a command that runs nodegate outside of a cluster.
func nodegate(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), asNodegate+"=1", "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=")
	return command
}

// run runs nodegate until it exits.
func run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, progress, stop := await.Watch(t.Context(), await.Silence)
	defer stop()
	command := nodegate(ctx, t, args...)
	var out, err bytes.Buffer
	command.Stdout, command.Stderr = observed{&out, progress}, observed{&err, progress}
	if failure := command.Run(); failure != nil && command.ProcessState == nil {
		t.Fatal(failure)
	}
	return out.String(), err.String(), command.ProcessState.ExitCode()
}

// observed calls a function after each write.
type observed struct {
	io.Writer
	written func()
}

func (o observed) Write(p []byte) (int, error) {
	o.written()
	return o.Writer.Write(p)
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A pod with automountServiceAccountToken: false has the variables of the API server, but no token.
func TestPodWithoutToken(t *testing.T) {
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
		return // the tests run in a pod that has one
	}
	command := nodegate(t.Context(), t, "controller", "--allowed-taint-keys=example.com/key")
	command.Env = append(command.Env, "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1")
	stderr, err := command.CombinedOutput()
	if err == nil {
		t.Error("it succeeded")
	}
	oneClearLine(t, string(stderr), "ServiceAccount", "/var/run/secrets/kubernetes.io/serviceaccount/token", "automountServiceAccountToken")
	if strings.Contains(string(stderr), "reading kubeconfig") {
		t.Errorf("it blames a kubeconfig: %s", stderr)
	}
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://SERVER"}}], users: [{name: c, user: {}}],
contexts: [{name: c, context: {cluster: c, user: c}}]}`

// unused returns an address without a listener.
func unused(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Each mistake results in a one-line error that names it, and in a non-zero exit status.
func TestMistakes(t *testing.T) {
	keys := []string{"--allowed-taint-keys", "example.com/key"}
	controller := func(args ...string) []string { return append(append([]string{"controller"}, keys...), args...) }
	server := unused(t)
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command":        {[]string{"contoller"}, []string{`unknown command "contoller"`}},
		"unknown flag":           {controller("--kubconfig=x"), []string{"unknown flag: --kubconfig"}},
		"argument":               {controller("x"), []string{`"x"`}},
		"lease of half seconds":  {controller("--leader-elect-lease-duration=2500ms"), []string{"--leader-elect-lease-duration: ", "whole seconds"}},
		"no workers":             {controller("--workers=0"), []string{"--workers is 0"}},
		"not a number":           {controller("--workers=many"), []string{"--workers", `"many"`}},
		"bad keys":               {[]string{"controller", "--allowed-taint-keys=a b,c d"}, []string{`"a b"`, `"c d"`}},
		"bad stamp":              {controller("--allowed-stamp-annotations=node.kubernetes.io/x"), []string{`"node.kubernetes.io/x"`, "kubernetes.io are reserved"}},
		"bad namespace":          {controller("--namespace=No_Namespace"), []string{`"No_Namespace"`}},
		"not in a cluster":       {controller(), []string{"not in a cluster: use --kubeconfig"}},
		"missing kubeconfig":     {controller("--kubeconfig=/nowhere/config"), []string{"/nowhere/config", "no such file"}},
		"kubeconfig is a folder": {controller("--kubeconfig=" + t.TempDir()), []string{"reading kubeconfig", "directory"}},
		"kubeconfig is empty":    {controller("--kubeconfig=" + file(t, "")), []string{"reading kubeconfig"}},
		"kubeconfig is invalid":  {controller("--kubeconfig=" + file(t, "{{{")), []string{"reading kubeconfig"}},
		"no context":             {controller("--kubeconfig=" + file(t, strings.ReplaceAll(kubeconfig, "current-context: c", "preferences: {}"))), []string{"no context is selected", "current-context"}},
		"unknown context":        {controller("--kubeconfig=" + file(t, strings.ReplaceAll(kubeconfig, "current-context: c", "current-context: other"))), []string{"reading kubeconfig", "other"}},
		"no listener":            {controller("--kubeconfig=" + file(t, strings.ReplaceAll(kubeconfig, "SERVER", server))), []string{server, "connection refused"}},
		"unknown birth":          {controller("--birth=magic"), []string{`"magic"`, `"policy"`, `"webhook"`}},
		"bad webhook address":    {controller("--birth=webhook", "--webhook-bind-address=9443"), []string{"--webhook-bind-address", "9443"}},
		"bad webhook port":       {controller("--birth=webhook", "--webhook-bind-address=:x"), []string{"--webhook-bind-address", `"x"`}},
		"webhook's clients":      {controller("--birth=webhook", "--webhook-client-names=x"), []string{"--webhook-client-names requires --webhook-client-ca-file: "}},
		"release: no nodes":      {[]string{"release"}, []string{"specify either node names or --all"}},
		"release: nodes and all": {[]string{"release", "--all", "n1"}, []string{"specify either node names or --all"}},
		"release: no gate":       {[]string{"release", "--all", "--gate="}, []string{"--gate contains an empty gate name"}},
		"release: empty gate":    {[]string{"release", "n1", "--gate=a,"}, []string{"--gate contains an empty gate name"}},
		"release: dry run":       {[]string{"release", "--all", "--dry-run=yes"}, []string{"--dry-run=yes", "none, client or server"}},
		"release: control code":  {[]string{"release", "--all", "--dry-run=\x1b[2J"}, []string{`--dry-run=\x1b[2J: use`}},
		"release: no listener":   {[]string{"release", "--all", "--kubeconfig=" + file(t, strings.ReplaceAll(kubeconfig, "SERVER", server))}, []string{"connection refused"}},
		"uninstall: argument":    {[]string{"uninstall", "x"}, []string{`"x"`}},
		"uninstall: dry run":     {[]string{"uninstall", "--dry-run=yes"}, []string{"--dry-run=yes"}},
		"uninstall: namespace":   {[]string{"uninstall", "--namespace=No_Namespace", "--kubeconfig=" + file(t, strings.ReplaceAll(kubeconfig, "SERVER", server))}, []string{`"No_Namespace"`}},
		"manifests: birth":       {[]string{"manifests", "--allowed-taint-keys=a.b/c", "--birth=magic"}, []string{`"magic"`}},
		"manifests: bad key":     {[]string{"manifests", "--allowed-taint-keys=a b"}, []string{`"a b"`}},
		"manifests: core's key":  {[]string{"manifests", "--allowed-taint-keys=node.kubernetes.io/unschedulable"}, []string{`"node.kubernetes.io/unschedulable:NoSchedule"`, "belong to Kubernetes"}},
		"convert: unknown tool":  {[]string{"convert", "cilium"}, []string{`"cilium"`, "istio, nidhogg"}},
		"convert: no file":       {[]string{"convert", "tainter"}, []string{"FILE", "standard input"}},
		"manifests: bad stamp":   {[]string{"manifests", "--allowed-taint-keys=a", "--allowed-stamp-annotations=gate.nodegate.dev/a"}, []string{`"gate.nodegate.dev/a"`}},
		"manifests: all invalid": {[]string{"manifests", "--allowed-taint-keys=a b,c d", "--namespace=A", "--service-account=B!"}, []string{`"a b"`, `"c d"`, `"A"`, `"B!"`}},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := run(t, test.args...)
			oneClearLine(t, stderr, test.want...)
			if status != 1 || stdout != "" {
				t.Errorf("status %d, output %q; want 1 and nothing", status, stdout)
			}
		})
	}
}

// Paths in a kubeconfig are relative to its directory.
func TestPathsInKubeconfig(t *testing.T) {
	path := file(t, strings.ReplaceAll(kubeconfig, `"https://SERVER"`, `"https://SERVER", certificate-authority: ca.crt`))
	want := filepath.Join(filepath.Dir(path), "ca.crt")
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if config, err := restConfig(path); err != nil || config.CAFile != want {
		t.Errorf("the configuration is %+v, want CA file %s: %v", config, want, err)
	}
}

func oneClearLine(t *testing.T, stderr string, want ...string) {
	t.Helper()
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "nodegate: ") {
		t.Errorf("want one line that starts with 'nodegate: ', got:\n%s", stderr)
	}
	for _, part := range want {
		if !strings.Contains(stderr, part) {
			t.Errorf("the error does not contain %q:\n%s", part, stderr)
		}
	}
}

// By default, both commands allow the presets' keys, and no taint that detaches volumes.
func TestDefaultKeys(t *testing.T) {
	all := strings.Join(presets.TaintKeys(), ",")
	byDefault, _, status := run(t, "manifests")
	given, _, _ := run(t, "manifests", "--allowed-taint-keys="+all)
	if status != 0 || byDefault != given {
		t.Errorf("status %d; without the flag and with the presets' keys the manifests differ", status)
	}
	if help, _, _ := run(t, "controller", "--help"); !strings.Contains(help, "(default ["+all+"])") {
		t.Errorf("the controller has another default:\n%s", help)
	}
	if strings.Contains(all, "out-of-service") {
		t.Error("out-of-service is allowed by default")
	}
}

func TestManifestsAndHelp(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--version"}, []string{"nodegate "}},
		{nil, []string{"controller", "manifests"}},
		{[]string{"controller", "--help"}, []string{"--kubeconfig", "SIGTERM", "--allowed-taint-keys", "--gates"}},
		{[]string{"release", "--help"}, []string{"list nodegates.nodegate.dev and get the Lease nodegate, unless --force is\nused, and, if this Lease does not exist, get the ClusterRoleBinding nodegate"}},
		{[]string{"manifests", "--allowed-taint-keys=example.com/key", "--namespace=other"}, []string{"kind: CustomResourceDefinition", "example.com/key", "namespace: other"}},
		{[]string{"manifests", "--allowed-taint-keys=example.com/key", "--allowed-stamp-annotations=example.com/at"}, []string{"example.com/at"}},
	} {
		stdout, stderr, status := run(t, test.args...)
		if status != 0 || stderr != "" {
			t.Errorf("%v: status %d, error %q", test.args, status, stderr)
		}
		for _, part := range test.want {
			if !strings.Contains(stdout, part) {
				t.Errorf("%v: no %q in:\n%s", test.args, part, stdout)
			}
		}
	}
}

// With gates from files, the cluster needs neither the CRD nor permissions for it.
func TestManifestsWithoutCRD(t *testing.T) {
	stdout, stderr, status := run(t, "manifests", "--allowed-taint-keys=example.com/key", "--without-crd")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, error %q", status, stderr)
	}
	for _, part := range []string{"CustomResourceDefinition", "- customresourcedefinitions\n", "- nodegates\n", "- nodegates/status\n"} {
		if strings.Contains(stdout, part) {
			t.Errorf("%s is in:\n%s", part, stdout)
		}
	}
	for _, part := range []string{"kind: MutatingAdmissionPolicy\n", "kind: ClusterRole\n", "podtemplates"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("%s is not in:\n%s", part, stdout)
		}
	}
}
