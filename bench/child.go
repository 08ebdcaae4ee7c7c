// SPDX-License-Identifier: Apache-2.0

package main

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

	"github.com/nodegate/nodegate/cluster"
)

// ready is what a child says first, on a line of its own, when it has begun to
// do its work.
const ready = "ready"

// stopLimit is how long a child may take to stop.
const stopLimit = 10 * time.Second

// A child is a process of this program.
type child struct {
	command *exec.Cmd
	lines   *bufio.Scanner
}

// startChild starts this program as another one, and returns when that says
// that it is ready. It ends with this process in any case.
func startChild(ctx context.Context, c *cluster.Cluster, program, kubeconfig string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", program, err)
	}
	group, err := syscall.Getpgid(c.PID(cluster.APIServer)) // killed with the cluster
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", program, err)
	}
	p := &child{command: exec.Command(self, program, kubeconfig)}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", program, err)
	}
	p.lines = bufio.NewScanner(output)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", program, err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.command.Process.Kill() })()
	if !p.lines.Scan() || p.lines.Text() != ready {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("starting the %s: it did not become ready", program), p.stop(p.drain))
	}
	return p, nil
}

// stop asks the child to stop, has its output read to the end, or it might wait
// for a reader, and returns when it has ended.
func (p *child) stop(drain func()) error {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(stopLimit, func() { _ = p.command.Process.Kill() })
	defer kill.Stop()
	drain()
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("stopping %s: %w", p.command.Args[1], err)
	}
	return nil
}

// drain reads what is left of the child's output.
func (p *child) drain() {
	for p.lines.Scan() {
	}
}

// sayReady tells the parent.
func sayReady(out io.Writer) error {
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return fmt.Errorf("telling that it is ready: %w", err)
	}
	return nil
}
