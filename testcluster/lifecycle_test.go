// SPDX-License-Identifier: Apache-2.0

package testcluster_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// TestRestartKeepsData also restarts the whole cluster, in the same directory.
func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, smallest(dir))
	config := c.Admin()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	_, err := clientFor(t, config).CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept := func() {
		t.Helper()
		_, err := clientFor(t, config).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
	before := c.PID(testcluster.APIServer)
	if err := c.RestartComponent(t.Context(), testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if before == c.PID(testcluster.APIServer) {
		t.Error("the API server's process is still the same")
	}
	kept()

	c.KillComponent(testcluster.Etcd)
	if c.PID(testcluster.Etcd) != 0 {
		t.Error("etcd has a process ID after it was killed")
	}
	if err := c.StartComponent(t.Context(), testcluster.Etcd); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept()
	if err := c.Err(); err != nil {
		t.Errorf("a requested end is reported as an error: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	config = start(t, smallest(dir)).Admin()
	kept()
}

func TestStartComponentThatRuns(t *testing.T) {
	t.Parallel()
	c := start(t, smallest(t.TempDir()))
	if err := c.StartComponent(t.Context(), testcluster.APIServer); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("got %v, want an error about a running component", err)
	}
	if err := c.StartComponent(t.Context(), testcluster.KWOK); err == nil || !strings.Contains(err.Error(), "not part") {
		t.Errorf("got %v, want an error about a component that is not part of the cluster", err)
	}
	if _, err := testcluster.Start(t.Context(), smallest(c.Dir())); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want an error about a directory in use", err)
	}
}

func TestDeathOfComponentIsReported(t *testing.T) {
	t.Parallel()
	c := start(t, smallest(t.TempDir()))
	if err := syscall.Kill(c.PID(testcluster.Etcd), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(await.Silence):
		t.Fatal("the cluster does not report it")
	}
	var exit *testcluster.ExitError
	if err := c.Err(); !errors.As(err, &exit) {
		t.Fatalf("got %v, want an ExitError", err)
	}
	if exit.Component != testcluster.Etcd || len(exit.LastLines) < 10 {
		t.Errorf("got %q with %d lines of log, want etcd with its last lines", exit.Component, len(exit.LastLines))
	}
	for _, want := range []string{"etcd", "signal: killed", c.LogFile(testcluster.Etcd), exit.LastLines[0]} {
		if !strings.Contains(exit.Error(), want) {
			t.Errorf("%q is not in the error: %v", want, exit)
		}
	}
}

func TestTakenPort(t *testing.T) {
	clustertest.SkipIfShort(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	options := smallest(t.TempDir())
	options.APIServerPort = port
	_, err = testcluster.Start(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "port "+strconv.Itoa(port)) ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want an error that names the port", err)
	}
	if left := running(t, options.Dir); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

func TestFailedStart(t *testing.T) {
	clustertest.SkipIfShort(t)
	t.Parallel()
	options := smallest(t.TempDir())
	options.ExtraArgs = map[testcluster.Component][]string{testcluster.APIServer: {"--no-such-flag"}}
	_, err := testcluster.Start(t.Context(), options)
	var exit *testcluster.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("got %v, want an ExitError", err)
	}
	for _, want := range []string{"starting kube-apiserver", "exit status 1", "unknown flag: --no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error: %v", want, err)
		}
	}
	if left := running(t, options.Dir); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

func TestCancelledStart(t *testing.T) {
	clustertest.SkipIfShort(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error)
	go func() {
		_, err := testcluster.Start(ctx, smallest(""))
		failed <- err
	}()
	eventually(t, "a component to run", func(context.Context) (bool, error) {
		return len(running(t, os.TempDir())) > 0, nil
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if left := running(t, os.TempDir()); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for want, options := range map[string]testcluster.Options{
		`unknown component "kubelet"`:       {Components: []testcluster.Component{"kubelet"}},
		`unknown Kubernetes version "1.12"`: {KubernetesVersion: "1.12"},
		`port 65536`:                        {APIServerPort: 65536},
		`for unknown component "x"`:         {ExtraArgs: map[testcluster.Component][]string{"x": nil}},
		`kind "Pod" is not Stage`:           {Stages: "kind: Pod"},
	} {
		if _, err := testcluster.Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestEndOfParent ends a process that has a cluster in ways that prevent it from
// cleaning up.
func TestEndOfParent(t *testing.T) {
	clustertest.SkipIfShort(t)
	t.Parallel()
	for _, end := range []string{"SIGKILL", "panic"} {
		t.Run(end, func(t *testing.T) {
			dir := t.TempDir()
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), childVariable+"="+dir, endVariable+"="+end)
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			input, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
				t.Fatalf("the process with the cluster printed %q (%v), want ready", line, err)
			}
			group := groupOf(t, dir)
			if err := input.Close(); err != nil {
				t.Fatal(err)
			}
			if end == "SIGKILL" {
				if err := command.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := command.Wait(); err == nil {
				t.Fatal("the process exited with status 0")
			}
			eventually(t, "all processes to end", func(context.Context) (bool, error) {
				return len(running(t, dir)) == 0 && !groupExists(group), nil
			})
		})
	}
}

// groupOf returns the process group of the components in a directory.
func groupOf(t *testing.T, dir string) int {
	t.Helper()
	for _, id := range running(t, dir) {
		pid, err := strconv.Atoi(id)
		if err != nil {
			continue
		}
		if group, err := syscall.Getpgid(pid); err == nil && group != syscall.Getpgrp() {
			return group
		}
	}
	t.Fatalf("no process is running in %s", dir)
	return 0
}
