// SPDX-License-Identifier: Apache-2.0

// Package child runs parts of the benchmark as processes of their own, which are
// this program under another name: what one of them does is then no other's work.
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

	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/cluster/await"
)

// ready is what a child says first, on a line of its own, when it has begun to
// do its work.
const ready = "ready"

// A Process is a child as its parent sees it.
type Process struct {
	// Lines is what it says after that it is ready.
	Lines *bufio.Scanner

	command *exec.Cmd
}

// Start starts this program again with other arguments, and returns when that
// says that it is ready. It ends with this process in any case.
func Start(ctx context.Context, c *cluster.Cluster, arguments ...string) (*Process, error) {
	name := arguments[0]
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	group, err := syscall.Getpgid(c.PID(cluster.APIServer)) // killed with the cluster
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

// PID is the process's.
func (p *Process) PID() int { return p.command.Process.Pid }

// Stop asks the child to stop, has its output read to the end by drain, or it
// might wait for a reader, and returns when it has ended.
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

// Drain reads what is left of the child's output.
func (p *Process) Drain() {
	for p.Lines.Scan() {
	}
}

// SayReady tells the parent.
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
