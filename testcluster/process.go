// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/testcluster/processgroup"
)

const (
	// lastLines is the number of log lines that an error shows.
	lastLines = 20

	// lastBytes limits how much of the end of a log is searched for those lines.
	lastBytes = 64 << 10

	// stopPeriod is how long a component may take to stop before it is
	// killed.
	stopPeriod = 5 * time.Second
)

// An ExitError is returned when a component has ended unexpectedly.
type ExitError struct {
	Component Component
	Err       error    // how it ended: an *exec.ExitError, or nil for status 0
	LastLines []string // the last lines of its output
	LogFile   string   // all of its output
}

// Error returns the component's name, how it ended, and its last log lines.
func (e *ExitError) Error() string {
	status := "exit status 0"
	if e.Err != nil {
		status = e.Err.Error()
	}
	return fmt.Sprintf("%s ended (%s); the last lines of %s:\n%s", e.Component, status, e.LogFile, indent(e.LastLines))
}

// Unwrap returns how the component ended.
func (e *ExitError) Unwrap() error { return e.Err }

func indent(lines []string) string {
	if len(lines) == 0 {
		return "  (nothing)"
	}
	return "  " + strings.Join(lines, "\n  ")
}

// A process is one run of a component.
type process struct {
	component Component
	command   *exec.Cmd
	logFile   string
	logStart  int64         // where in the log this run's output begins
	stopping  atomic.Bool   // stop or kill was called
	done      chan struct{} // closed when it has ended
	err       error         // how it ended; valid once done is closed
}

// startProcess starts a program in the group, its output appended to logFile.
func startProcess(group *processgroup.Group, component Component, command *exec.Cmd, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = log, log
	command.Env = componentEnvironment(command.Dir)
	if err := group.Start(command); err != nil {
		return nil, err
	}
	p := &process{
		component: component,
		command:   command,
		logFile:   logFile,
		logStart:  info.Size(),
		done:      make(chan struct{}),
	}
	go func() {
		p.err = command.Wait()
		close(p.done)
	}()
	return p, nil
}

// StartProcess starts a program that belongs to the tests, not to the cluster. It is killed when
// the cluster stops, and when this process ends for any reason. A Ctrl-C at the terminal does not
// reach it, so that this process can stop everything in order. The caller waits for it.
func (c *Cluster) StartProcess(command *exec.Cmd) error {
	if err := c.group.Start(command); err != nil {
		return fmt.Errorf("starting %s: %w", filepath.Base(command.Path), err)
	}
	return nil
}

// componentEnvironment returns the environment of components. It excludes most of the
// caller's: etcd reads options from ETCD_*, client-go reads feature gates from
// KUBE_FEATURE_*, and loopback traffic must not go through a proxy.
func componentEnvironment(home string) []string {
	environment := []string{"HOME=" + home, "TMPDIR=" + os.TempDir()}
	for _, name := range []string{"PATH", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG"} {
		if value, ok := os.LookupEnv(name); ok {
			environment = append(environment, name+"="+value)
		}
	}
	return environment
}

// stop sends SIGTERM and, after stopPeriod, SIGKILL. It returns when the process has
// ended.
func (p *process) stop() {
	p.stopping.Store(true)
	processgroup.Stop(p.command.Process, p.done, stopPeriod)
}

// kill ends the process at once and returns when it has ended.
func (p *process) kill() {
	p.stopping.Store(true)
	_ = p.command.Process.Kill()
	<-p.done
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// logSize returns the size of the log, or 0 if it cannot be read.
func (p *process) logSize() int64 {
	info, err := os.Stat(p.logFile)
	if err != nil {
		return 0
	}
	return info.Size()
}

// exitError returns the error of a process that has ended.
func (p *process) exitError() *ExitError {
	return &ExitError{
		Component: p.component,
		Err:       p.err,
		LastLines: lastLinesOf(p.logFile, p.logStart),
		LogFile:   filepath.Clean(p.logFile),
	}
}

// lastLinesOf returns the last lines that a file has after an offset.
func lastLinesOf(name string, offset int64) []string {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		offset = max(offset, info.Size()-lastBytes)
	}
	data, err := io.ReadAll(io.NewSectionReader(file, offset, lastBytes))
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return lines[max(0, len(lines)-lastLines):]
}
