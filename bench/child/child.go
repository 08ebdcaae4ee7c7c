// SPDX-License-Identifier: Apache-2.0

// Package child runs parts of the benchmark as separate processes of the same
// program, so that their work can be measured separately.
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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// ready is the first line that a child prints, when it has begun its work.
const ready = "ready"

// A Process is the parent's handle of a child.
type Process struct {
	// Lines contains the child's output after the ready line.
	Lines *bufio.Scanner

	command *exec.Cmd
}

// Start starts this program as a child with the given arguments, and returns when
// the child is ready. The child ends with this process at the latest.
func Start(ctx context.Context, c *testcluster.Cluster, arguments ...string) (*Process, error) {
	name := arguments[0]
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	group, err := syscall.Getpgid(c.PID(testcluster.APIServer)) // killed with the cluster
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	p := &Process{command: exec.Command(self, arguments...)}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	p.Lines = bufio.NewScanner(output)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.command.Process.Kill() })()
	if !p.Lines.Scan() || p.Lines.Text() != ready {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("starting the %s: it did not become ready", name), p.Stop(p.Drain))
	}
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// Stop stops the child and returns when it has ended. drain must read the child's
// output to its end, because the child may block on writing it.
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

// SayReady reports to the parent that the child is ready.
func SayReady(out io.Writer) error {
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return fmt.Errorf("telling that it is ready: %w", err)
	}
	return nil
}

// Client returns the client of a child: without a rate limit and in protobuf,
// like nodegate's.
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
