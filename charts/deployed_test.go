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
	must(t, command.Start())
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
	if err := unmountable(); err != nil {
		t.Logf("nodegate uses a kubeconfig, because no token can be mounted at its path in pods: %v", err)
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

// unmountable returns the reason why a new mount namespace cannot be changed, or nil. In most
// containers, root is not permitted to do this either.
func unmountable() error {
	if output, err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// Whether a token can be mounted is tried, because it does not only depend on the user.
func TestUnmountable(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   bool
	}{
		"permitted":     {"exit 0", false},
		"not permitted": {"echo 'unshare failed: Operation not permitted' >&2; exit 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "unshare"), []byte("#!/bin/sh\n"+test.script+"\n"), 0o700))
			t.Setenv("PATH", dir)
			if err := unmountable(); (err != nil) != test.want || err != nil && !strings.Contains(err.Error(), "Operation not permitted") {
				t.Errorf("%v", err)
			}
		})
	}
}
