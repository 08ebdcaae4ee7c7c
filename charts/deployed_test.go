// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/testcluster"
)

// startAsDeployed starts nodegate with the arguments and the ServiceAccount of the
// Deployment, and waits until the readiness probe succeeds. It runs until it is stopped or
// the test ends.
func startAsDeployed(t *testing.T, c *testcluster.Cluster, program string, objects []*unstructured.Unstructured) (stop func()) {
	t.Helper()
	container := deployment(t, objects).Spec.Template.Spec.Containers[0]
	if len(container.Command) > 0 || len(container.EnvFrom) > 0 {
		t.Fatal("the container has a command or environment sources, which this test does not support")
	}
	command := inCluster(t, c, program, expanded(t, &container))
	log, err := os.Create(filepath.Join(t.TempDir(), "nodegate.log"))
	must(t, err)
	command.Stdout, command.Stderr = log, log
	must(t, c.StartProcess(command))
	stop = sync.OnceFunc(func() {
		if err := errors.Join(command.Process.Signal(os.Interrupt), command.Wait(), log.Close()); err != nil {
			t.Errorf("stopping nodegate: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("nodegate's log (%v):\n%s", err, text)
		}
	})
	probe := container.ReadinessProbe.HTTPGet
	for _, p := range container.Ports {
		if p.Name == probe.Port.StrVal {
			eventually(t, "nodegate to be ready", func(ctx context.Context) error {
				return get(ctx, fmt.Sprintf("http://127.0.0.1:%d%s", p.ContainerPort, probe.Path))
			})
			return stop
		}
	}
	t.Fatalf("the readiness probe's port %s is not the container's", probe.Port.StrVal)
	return nil
}

// expanded returns the container's arguments with its variables expanded, as by the
// kubelet.
func expanded(t *testing.T, container *corev1.Container) []string {
	t.Helper()
	var pairs []string
	for _, v := range container.Env {
		value := v.Value
		if v.ValueFrom != nil {
			if field := v.ValueFrom.FieldRef; field == nil || field.FieldPath != "metadata.name" {
				t.Fatalf("the test has no value for variable %s", v.Name)
			}
			value = "nodegate-0"
		}
		pairs = append(pairs, "$("+v.Name+")", value)
	}
	args := make([]string, len(container.Args))
	for i, arg := range container.Args {
		args[i] = strings.NewReplacer(pairs...).Replace(arg)
	}
	return args
}

// inCluster returns a command with the environment of a pod: the API server's address in
// variables, and a token at the path where kubelets mount it, in a separate mount
// namespace. This requires permission to mount; otherwise, nodegate uses a kubeconfig.
func inCluster(t *testing.T, c *testcluster.Cluster, program string, args []string) *exec.Cmd {
	t.Helper()
	config, err := c.ServiceAccount(t.Context(), namespace, "nodegate")
	must(t, err)
	dir := t.TempDir()
	denied, err := deniesMounts()
	must(t, err)
	if denied {
		t.Log("nodegate uses a kubeconfig, because no token can be mounted at its path in pods")
		kubeconfig := filepath.Join(dir, "kubeconfig")
		must(t, testcluster.WriteKubeconfig(kubeconfig, config))
		return exec.Command(program, append(args, "--kubeconfig", kubeconfig)...)
	}
	write(t, filepath.Join(dir, "token"), []byte(config.BearerToken))
	write(t, filepath.Join(dir, "ca.crt"), config.CAData)
	write(t, filepath.Join(dir, "namespace"), []byte(namespace))
	const mount = `set -e
		mount -t tmpfs tmpfs /run
		mkdir -p /run/secrets/kubernetes.io/serviceaccount
		cp "$0"/* /run/secrets/kubernetes.io/serviceaccount/
		[ -e /var/run/secrets ] || { mount -t tmpfs tmpfs /var/run; cp -r /run/secrets /var/run/; }
		exec "$@"`
	command := exec.Command("unshare", append([]string{"--mount", "sh", "-c", mount, dir, program}, args...)...)
	host, err := url.Parse(config.Host)
	must(t, err)
	command.Env = []string{"KUBERNETES_SERVICE_HOST=" + host.Hostname(), "KUBERNETES_SERVICE_PORT=" + host.Port(), "PATH=" + os.Getenv("PATH")}
	return command
}

// deniesMounts reports whether a new mount namespace cannot be changed here. In most
// containers, root is not permitted to do this either. Any other failure is an error, so that
// the test does not silently use a kubeconfig where a token can be mounted.
func deniesMounts() (denied bool, err error) {
	output, err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run").CombinedOutput()
	for _, reason := range []string{"not permitted", "ermission denied"} {
		if err != nil && bytes.Contains(output, []byte(reason)) {
			return true, nil
		}
	}
	if errors.Is(err, exec.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		err = fmt.Errorf("mounting in a new namespace: %w: %s", err, bytes.TrimSpace(output))
	}
	return false, err
}

// The permission to mount depends on more than the user.
func TestDeniesMounts(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0": "false <nil>",
		"echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1": "true <nil>",
		"echo 'mount: /run: permission denied.' >&2; exit 32":                 "true <nil>",
		"echo 'mount: /run: no such directory.' >&2; exit 32":                 "false mounting in a new namespace: exit status 32: mount: /run: no such directory.",
		"": "true <nil>", // no such program
	} {
		t.Run(script, func(t *testing.T) {
			dir := t.TempDir()
			if script != "" {
				must(t, os.WriteFile(filepath.Join(dir, "unshare"), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
			}
			t.Setenv("PATH", dir)
			if denied, err := deniesMounts(); fmt.Sprint(denied, " ", err) != want {
				t.Errorf("%t, %v, want %s", denied, err, want)
			}
		})
	}
}
