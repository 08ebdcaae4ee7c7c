// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package processgroup starts processes that do not outlive this one.
package processgroup

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A Group is a set of child processes that end when this process ends, for any
// reason.
//
// Its leader is a shell that waits for the end of its standard input: a pipe
// whose only write end is in this process and is closed on exec. When this
// process is gone the kernel closes the pipe, and the shell kills its own
// process group, in which all the children are. There is no gap: a child
// joins the group before it executes its program, and until it has executed
// it, it holds a copy of the write end, so that the shell cannot yet see the
// end of the pipe.
//
// The group is not the terminal's foreground group: Ctrl-C reaches this
// process alone, which then decides in which order the children stop.
type Group struct {
	leader *exec.Cmd
	pipe   *os.File
	once   sync.Once
}

// The leader must ignore signals that are sent to all processes, except SIGKILL.
const leaderScript = `trap '' HUP INT QUIT TERM; read -r _; kill -KILL 0`

// New starts the leader of an empty group. The caller must kill
// the group in the end.
func New() (*Group, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting a process group: %w", err)
	}
	defer read.Close()
	leader := exec.Command("/bin/sh", "-c", leaderScript)
	leader.Dir = "/"
	leader.Stdin = read
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := leader.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("starting a process group: %w", err)
	}
	return &Group{leader: leader, pipe: write}, nil
}

// Start starts a command in the group. It sets the process group in SysProcAttr.
func (g *Group) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, g.leader.Process.Pid
	return cmd.Start()
}

// Kill kills every process of the group. The group cannot be used any more. The
// callers that started the other processes wait for them.
func (g *Group) Kill() {
	g.once.Do(func() {
		// Wait has not been called, so the leader's process ID is not reused.
		_ = syscall.Kill(-g.leader.Process.Pid, syscall.SIGKILL)
		_ = g.leader.Wait()
		g.pipe.Close()
	})
}

// Stop sends SIGTERM to a process and, if ended is not closed in time, SIGKILL. It returns when
// ended is closed, and reports whether SIGTERM was sufficient.
func Stop(process *os.Process, ended <-chan struct{}, within time.Duration) bool {
	_ = process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-ended:
		return true
	case <-time.After(within):
		_ = process.Kill()
		<-ended
		return false
	}
}
