// SPDX-License-Identifier: Apache-2.0

// Package child runs parts of the benchmark as child processes, which execute the same
// program, so that the costs of each part can be measured separately.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	retry "k8s.io/client-go/tools/watch"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// ready is the first line of a child's output.
const ready = "ready"

// wholeRun is the requested duration of a watch in seconds, which is longer than a run of
// the benchmark.
var wholeRun int64 = 4 * 60 * 60

// A Process is the parent's handle of a child process.
type Process struct {
	// Lines scans the child's output after the first line.
	Lines *bufio.Scanner

	command *exec.Cmd
}

// Start starts this program as a child process with the given arguments, and returns
// when the child is ready. The child does not outlive this process.
func Start(ctx context.Context, c *testcluster.Cluster, arguments ...string) (*Process, error) {
	p, err := start(c, arguments)
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", arguments[0], err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.command.Process.Kill() })()
	if !p.Lines.Scan() || p.Lines.Text() != ready {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("starting the %s: it did not become ready", arguments[0]), p.Stop(p.Drain))
	}
	return p, nil
}

func start(c *testcluster.Cluster, arguments []string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{command: exec.Command(self, arguments...)}
	p.command.Stderr = os.Stderr
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Lines = bufio.NewScanner(output)
	return p, c.StartProcess(p.command)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// Stop stops the child and returns when it has ended. Because the child may block on
// writing, drain must read its output to the end.
func (p *Process) Stop(drain func()) error {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(await.Silence, func() { _ = p.command.Process.Kill() })
	defer kill.Stop()
	drain()
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("stopping %s: %w", p.command.Args[1], err)
	}
	return nil
}

// Drain discards the rest of the child's output.
func (p *Process) Drain() {
	for p.Lines.Scan() {
	}
}

// SayReady tells the parent that the child is ready.
func SayReady(out io.Writer) error {
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return fmt.Errorf("reporting ready: %w", err)
	}
	return nil
}

// Client returns a client with the settings of nodegate's: protobuf, and no rate limit.
func Client(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

// Watch returns the existing objects of a source and all later events. It resumes the
// watch when the API server ends it; interrupted is called before.
func Watch(ctx context.Context, source *cache.ListWatch, interrupted func()) (runtime.Object, <-chan watch.Event, error) {
	existing, err := source.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("listing: %w", err)
	}
	list, err := meta.ListAccessor(existing)
	if err != nil {
		return nil, nil, fmt.Errorf("listing: %w", err)
	}
	resumed := false
	watcher, err := retry.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if resumed {
				interrupted()
			}
			resumed, o.TimeoutSeconds = true, &wholeRun
			return source.WatchWithContext(ctx, o)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watching: %w", err)
	}
	return existing, watcher.ResultChan(), nil
}
