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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodegate/nodegate/testcluster/components"
)

// busDaemon is installed on the host.
const busDaemon components.Component = "dbus-daemon"

// services are the processes that PID 1 keeps running.
type services struct {
	spec   spec
	logs   map[components.Component]*os.File
	logind *logind

	mu      sync.Mutex
	running map[int]components.Component
	// stopped reports whether the kubelet is to stay away.
	stopped bool
}

// restartDelay is the time after which a service that ended is started again.
const restartDelay = 100 * time.Millisecond

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
			pause()
		}
	}
	if p.logind, err = newLogind(); err != nil {
		return err
	}
	if err := p.loadImage(); err != nil {
		return err
	}
	return p.start(components.Kubelet)
}

// loadImage loads the image when the machine boots for the first time.
func (p *services) loadImage() error {
	const marker = "/var/lib/image-loaded"
	if _, err := os.Stat(marker); err == nil || p.spec.Image == "" {
		return nil
	}
	if err := p.start(components.Ctr); err != nil {
		return err
	}
	for p.isRunning(components.Ctr) {
		pause()
	}
	return os.WriteFile(marker, nil, 0o644)
}

// reap waits for processes, and starts services again that have ended. PID 1 is the parent
// of all processes whose parents have ended.
func (p *services) reap() error {
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD): // nothing has been started yet
			pause()
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		default:
			p.ended(pid)
		}
	}
}

func (p *services) ended(pid int) {
	p.mu.Lock()
	c, ok := p.running[pid]
	delete(p.running, pid)
	p.mu.Unlock()
	if ok && c != components.Ctr {
		time.AfterFunc(restartDelay, func() { _ = p.start(c) })
	}
}

// start starts a service that is not running.
func (p *services) start(c components.Component) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid(c) != 0 || c == components.Kubelet && p.stopped {
		return nil
	}
	log := p.logs[c]
	if log == nil {
		log = os.Stderr
	}
	program, err := exec.LookPath(string(c))
	if err != nil {
		return err
	}
	// Not exec.Cmd: reap waits for all processes.
	process, err := os.StartProcess(program, append([]string{program}, p.spec.arguments(c)...), &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=" + path, "HOME=/root"}, Files: []*os.File{nil, log, log},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	p.running[process.Pid] = c
	return process.Release()
}

// pid returns the process ID of a service, or 0 if it is not running.
func (p *services) pid(c components.Component) int {
	for pid, running := range p.running {
		if running == c {
			return pid
		}
	}
	return 0
}

func (p *services) isRunning(c components.Component) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid(c) != 0
}

// pause waits until it is worth looking again.
func pause() { <-time.After(20 * time.Millisecond) }

// answers reports whether a process accepts connections on the socket.
func answers(socket string) bool {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

// obey carries out the commands on standard input.
func (p *services) obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := p.carryOut(lines.Text()); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", lines.Text(), err)
		}
	}
}

func (p *services) carryOut(command string) error {
	switch command {
	case commandKill, commandStop:
		p.killKubelet(command == commandStop)
	case commandStart:
		p.mu.Lock()
		p.stopped = false
		p.mu.Unlock()
		return p.start(components.Kubelet)
	case commandShutdown:
		if err := p.logind.shutDown(); err != nil {
			return err
		}
		os.Exit(0)
	case commandPrepare:
		return p.logind.announce(true)
	case commandCancel:
		return p.logind.announce(false)
	default:
		return errors.New("unknown command")
	}
	return nil
}

func (p *services) killKubelet(stop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = stop
	if pid := p.pid(components.Kubelet); pid != 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
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
		return []string{"--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "/image.tar"}
	}
	return []string{"--config", "/etc/" + kubeletFile, "--kubeconfig", "/etc/" + kubeconfigFile,
		"--hostname-override", s.Name, "--node-ip", s.Address, "--v=2"}
}
