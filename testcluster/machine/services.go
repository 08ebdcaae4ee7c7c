// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/testcluster/components"
)

// busDaemon is installed on the host.
const busDaemon components.Component = "dbus-daemon"

// services are the processes that PID 1 keeps running. PID 1 ends, and the machine with it,
// if it cannot.
type services struct {
	spec   spec
	logs   map[components.Component]*os.File
	logind *logind
	// loaded receives how the program that loads an image has ended.
	loaded chan unix.WaitStatus

	mu      sync.Mutex
	running map[int]components.Component
}

const (
	// restartDelay is the time after which a service that ended is started again.
	restartDelay = 100 * time.Millisecond
	// pollInterval is the interval at which PID 1 checks what it waits for.
	pollInterval = 20 * time.Millisecond
)

// startAll starts all services, in the order in which they need each other.
func (p *services) startAll() (err error) {
	for _, s := range []struct {
		service components.Component
		socket  string
	}{{busDaemon, busSocket}, {components.Containerd, containerdSocket}} {
		if err := p.start(s.service); err != nil {
			return err
		}
		for !answers(s.socket) {
			<-time.After(pollInterval)
		}
	}
	if p.logind, err = newLogind(); err != nil {
		return err
	}
	if err := p.loadImages(); err != nil {
		return fmt.Errorf("loading images: %w", err)
	}
	return p.start(components.Kubelet)
}

// loadImages loads the images when the machine boots for the first time.
func (p *services) loadImages() error {
	const marker = "/var/lib/images-loaded"
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	for i := range p.spec.Images {
		if err := p.start(components.Ctr, imagePath(i)); err != nil {
			return err
		}
		if status := <-p.loaded; status != 0 {
			return fmt.Errorf("ctr ended with wait status %#x", status)
		}
	}
	return os.WriteFile(marker, nil, 0o644)
}

// reap waits for processes, and starts services again that have ended. PID 1 is the parent
// of all processes whose parents have ended.
func (p *services) reap() error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD): // nothing has been started yet
			<-time.After(pollInterval)
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		default:
			p.ended(pid, status)
		}
	}
}

func (p *services) ended(pid int, status unix.WaitStatus) {
	p.mu.Lock()
	c := p.running[pid]
	delete(p.running, pid)
	p.mu.Unlock()
	switch c {
	case "": // the child of a process that has ended
	case components.Ctr:
		p.loaded <- status
	case busDaemon:
		fail(errors.New("the bus ended, and logind with it"))
	default:
		time.AfterFunc(restartDelay, func() {
			if err := p.start(c); err != nil {
				fail(err)
			}
		})
	}
}

// imagePath returns the path of an image archive on the machine.
func imagePath(i int) string { return fmt.Sprintf("/images/%d.tar", i) }

// start starts a service, with further arguments.
func (p *services) start(c components.Component, more ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.logs[c]
	if log == nil {
		log = os.Stderr
	}
	program, err := exec.LookPath(string(c))
	if err != nil {
		return err
	}
	// Not exec.Cmd: reap waits for all processes.
	process, err := os.StartProcess(program, slices.Concat([]string{program}, p.spec.arguments(c), more), &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=" + searchPath, "HOME=/root"}, Files: []*os.File{nil, log, log},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", c, err)
	}
	p.running[process.Pid] = c
	return process.Release()
}

// answers reports whether a process accepts connections on the socket.
func answers(socket string) bool {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

// runCommands executes the commands on standard input.
func (p *services) runCommands() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := p.execute(lines.Text()); err != nil {
			fail(fmt.Errorf("%s: %w", lines.Text(), err))
		}
	}
}

func (p *services) execute(command string) error {
	switch command {
	case commandKill:
		p.killKubelet()
	case commandPrepare:
		return p.logind.announce(true)
	case commandCancel:
		return p.logind.announce(false)
	case commandFinish:
		if err := p.logind.awaitRelease(logindDelay); err != nil {
			return err
		}
		os.Exit(0)
	default:
		return errors.New("unknown command")
	}
	return nil
}

func (p *services) killKubelet() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, c := range p.running {
		if c == components.Kubelet {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// arguments returns the arguments of a program.
func (s *spec) arguments(c components.Component) []string {
	switch c {
	case busDaemon:
		return []string{"--nofork", "--nopidfile", "--config-file=/etc/" + busFile}
	case components.Containerd:
		return []string{"--config", "/etc/" + containerdFile}
	case components.Ctr:
		return []string{"--address", containerdSocket, "--namespace", "k8s.io", "images", "import"}
	}
	return []string{"--config", "/etc/" + kubeletFile, "--kubeconfig", "/etc/" + kubeconfigFile,
		"--hostname-override", s.Name, "--node-ip", s.Address, "--node-labels", labels.Set(s.Labels).String(), "--v=2"}
}
