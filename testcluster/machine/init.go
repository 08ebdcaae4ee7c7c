// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodegate/nodegate/testcluster/components"
)

// Init runs a machine's PID 1 and does not return, if this process was started as such.
// The main function of a program that uses machines must call it first.
func Init() {
	text := os.Getenv(specVariable)
	if text == "" {
		return
	}
	// Programs that the machine runs must not become another PID 1.
	_ = os.Unsetenv(specVariable)
	err := runInit(text)
	fmt.Fprintln(os.Stderr, "PID 1 ended:", err)
	os.Exit(1)
}

func runInit(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("reading the spec: %w", err)
	}
	logs := make(map[components.Component]*os.File)
	for _, c := range []components.Component{components.Containerd, components.Kubelet} {
		log, err := os.OpenFile(filepath.Join(s.Dir, logDir, string(c)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		logs[c] = log
	}
	if err := s.mountAll(); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if err := s.configureNetwork(); err != nil {
		return fmt.Errorf("configuring the network: %w", err)
	}
	p := &services{spec: s, logs: logs, running: make(map[int]components.Component)}
	return p.run()
}

// services are the processes that PID 1 keeps running.
type services struct {
	spec spec
	logs map[components.Component]*os.File

	mu      sync.Mutex
	running map[int]components.Component
	// stopped reports whether the kubelet is to stay away.
	stopped bool
}

// restartDelay is the time after which a service that ended is started again.
const restartDelay = 100 * time.Millisecond

func (p *services) run() error {
	if err := p.start(components.Containerd); err != nil {
		return err
	}
	go func() {
		if err := p.startKubelet(); err != nil {
			fmt.Fprintln(os.Stderr, "starting the kubelet:", err)
			os.Exit(1)
		}
	}()
	go p.obey()
	// PID 1 is the parent of all processes whose parents have ended.
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		default:
			p.ended(pid)
		}
	}
}

// ended starts a service again.
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
	// Not os/exec: the process is waited for in run.
	process, err := os.StartProcess(filepath.Join(programDir, string(c)), append([]string{string(c)}, p.spec.arguments(c)...), &os.ProcAttr{
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

// startKubelet starts the kubelet when containerd has the image.
func (p *services) startKubelet() error {
	for !answers(containerdSocket) {
		pause()
	}
	marker := "/var/lib/image-loaded"
	if _, err := os.Stat(marker); err != nil && p.spec.Image != "" {
		if err := p.start(components.Ctr); err != nil {
			return err
		}
		for p.isRunning(components.Ctr) {
			pause()
		}
		if err := os.WriteFile(marker, nil, 0o644); err != nil {
			return err
		}
	}
	return p.start(components.Kubelet)
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
		p.mu.Lock()
		p.stopped = lines.Text() == commandStop
		if pid := p.pid(components.Kubelet); pid != 0 && lines.Text() != commandStart {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		p.mu.Unlock()
		if lines.Text() == commandStart {
			_ = p.start(components.Kubelet)
		}
	}
}

// arguments returns the arguments of a program.
func (s *spec) arguments(c components.Component) []string {
	switch c {
	case components.Containerd:
		return []string{"--config", "/etc/" + containerdFile}
	case components.Ctr:
		return []string{"--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "/image.tar"}
	}
	return slices.Concat([]string{"--config", "/etc/" + kubeletFile, "--kubeconfig", "/etc/" + kubeconfigFile,
		"--hostname-override", s.Name, "--node-ip", s.Address, "--v=2"})
}
