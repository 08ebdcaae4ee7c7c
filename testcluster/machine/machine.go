// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

// SharedDir is where the machine has the directory Machine.Shared.
const SharedDir = "/shared"

// namespaces are those that a machine has of its own.
const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

// Options specifies a machine.
type Options struct {
	// Name is the name of the machine and of its Node.
	Name string
	// Number distinguishes machines that exist at the same time, from 1 to 250.
	Number int
	// Dir is an existing directory for the machine's disk and logs. It must be on a file
	// system that overlayfs can use as its upper layer, such as ext4.
	Dir string
	// Cluster is the cluster that the kubelet joins.
	Cluster *testcluster.Cluster
	// Programs are the paths of components.Node.
	Programs map[components.Component]string
	// Image is the image archive that BuildImage has written. It is loaded when the machine
	// is powered on for the first time.
	Image string
	// Images are further image archives, which are loaded as well.
	Images []string
	// Taints are the kubelet's registerWithTaints, and Labels the labels with which it
	// registers its Node.
	Taints []corev1.Taint
	Labels map[string]string
	// AbruptShutdown means that the kubelet does not delay shutdowns.
	AbruptShutdown bool
}

// A Machine is a test machine that can be powered on and off.
type Machine struct {
	options Options
	// cgroup is the name of the cgroup of the machine's pods. Cgroups are the host's.
	cgroup string
	link   *link // between the machine and the API server

	mu       sync.Mutex
	init     *exec.Cmd     // PID 1, or nil while the machine is off
	ended    chan struct{} // closed when all its processes have ended
	commands io.WriteCloser
	bootID   string
}

// New prepares a machine, which is off. The caller must close it in the end.
func New(o Options) (*Machine, error) {
	m := &Machine{options: o, cgroup: cgroupName(os.Getpid(), o.Name)}
	if err := m.prepare(); err != nil {
		m.Close()
		return nil, fmt.Errorf("preparing machine %s: %w", o.Name, err)
	}
	return m, nil
}

func (m *Machine) prepare() error {
	for _, dir := range []string{diskDir, etcDir, rootDir, logDir, filepath.Base(SharedDir), linkDir, nriDir} {
		if err := os.MkdirAll(m.file(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", m.file(diskDir, "run")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := m.writeConfiguration(); err != nil {
		return err
	}
	server, err := url.Parse(m.options.Cluster.Admin().Host)
	if err != nil {
		return err
	}
	socket := m.file(linkDir, apiSocket)
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	m.link = newLink(listener, "tcp", server.Host)
	go m.link.serve()
	return nil
}

// PowerOn boots the machine and returns when its PID 1 has been started.
func (m *Machine) PowerOn() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		return fmt.Errorf("machine %s is on", m.options.Name)
	}
	err := createCgroup(m.cgroup)
	if err == nil {
		err = m.boot()
	}
	if err != nil {
		return fmt.Errorf("powering on machine %s: %w", m.options.Name, errors.Join(err, removeCgroup(m.cgroup)))
	}
	return nil
}

func (m *Machine) boot() error {
	m.bootID = string(uuid.NewUUID())
	spec, err := json.Marshal(m.spec())
	if err != nil {
		return err
	}
	log, err := os.OpenFile(m.file(logDir, "init.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command("/proc/self/exe")
	command.Env = []string{specVariable + "=" + string(spec), "PATH=" + searchPath}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL, // the machine does not outlive this process
	}
	if m.commands, err = command.StdinPipe(); err != nil {
		return err
	}
	if m.ended, err = startOnThread(command); err != nil {
		return err
	}
	m.init = command
	return nil
}

// startOnThread starts a command from a thread that exists until it ends, because
// Pdeathsig is sent when that thread ends. The channel is closed when the command has ended.
func startOnThread(command *exec.Cmd) (ended chan struct{}, err error) {
	started := make(chan error)
	ended = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // it is killed in the end
		}
		close(ended)
	}()
	return ended, <-started
}

// PowerOff cuts the machine's power. It has no effect if the machine is off.
func (m *Machine) PowerOff() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return nil
	}
	_ = m.init.Process.Kill()
	<-m.ended
	m.init = nil
	_ = m.commands.Close()
	if err := removeCgroup(m.cgroup); err != nil {
		return fmt.Errorf("powering off machine %s: %w", m.options.Name, err)
	}
	return nil
}

// BootID returns the ID of the current or latest boot.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID
}

// KillKubelet kills the kubelet. It is started again at once.
func (m *Machine) KillKubelet() error { return m.send(commandKill) }

// Disconnect disconnects the machine from the API server, until Connect is called.
func (m *Machine) Disconnect() { m.link.cut(true) }

// Connect ends Disconnect.
func (m *Machine) Connect() { m.link.cut(false) }

// PrepareShutdown announces a shutdown on the machine's bus, as systemd-logind does. It must be
// followed by FinishShutdown, CancelShutdown or PowerOff.
func (m *Machine) PrepareShutdown() error { return m.send(commandPrepare) }

// CancelShutdown announces that the shutdown has been cancelled.
func (m *Machine) CancelShutdown() error { return m.send(commandCancel) }

// FinishShutdown powers the machine off when nothing delays the shutdown any longer. It fails if that
// takes longer than shutdowns may be delayed.
func (m *Machine) FinishShutdown(ctx context.Context) error {
	if err := m.send(commandFinish); err != nil {
		return err
	}
	m.mu.Lock()
	init, ended := m.init, m.ended
	m.mu.Unlock()
	select {
	case <-ended:
		if err := m.PowerOff(); err != nil {
			return err
		}
		if !init.ProcessState.Success() {
			return fmt.Errorf("shutting down machine %s: PID 1 has ended with %s, see init.log in %s", m.options.Name, init.ProcessState, m.Logs())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shutting down machine %s: %w", m.options.Name, context.Cause(ctx))
	}
}

func (m *Machine) send(command string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return fmt.Errorf("machine %s is off", m.options.Name)
	}
	_, err := io.WriteString(m.commands, command+"\n")
	return err
}

// Shared returns a directory that the machine has as SharedDir.
func (m *Machine) Shared() string { return m.file(filepath.Base(SharedDir)) }

// Var returns the directory that the machine has as /var, which survives reboots.
func (m *Machine) Var() string { return m.file(diskDir) }

// Logs returns the directory with the logs of PID 1, containerd and the kubelet.
func (m *Machine) Logs() string { return m.file(logDir) }

// Close powers the machine off. Its directory remains.
func (m *Machine) Close() error {
	err := m.PowerOff()
	if m.link != nil {
		_ = m.link.listener.Close()
	}
	return err
}

func (m *Machine) file(elements ...string) string {
	return filepath.Join(append([]string{m.options.Dir}, elements...)...)
}

// Unsupported returns the reason why machines cannot run here, or nil.
func Unsupported() error {
	if os.Geteuid() != 0 {
		return errors.New("it requires root")
	}
	try := exec.Command("/bin/true")
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := try.Run(); err != nil {
		return fmt.Errorf("creating namespaces: %w", err)
	}
	if newest := testcluster.Versions()[0]; testcluster.DefaultVersion() != newest {
		return fmt.Errorf("the kubelet's version is %s, which must not be newer than the API server's", newest)
	}
	var missing []string
	for _, program := range []string{"runc", "mount", "umount", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(pluginDir, plugin)); err != nil {
			missing = append(missing, filepath.Join(pluginDir, plugin))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: %v; on Debian: apt-get install runc containernetworking-plugins dbus-daemon", slices.Compact(missing))
	}
	return nil
}

// Programs builds the programs of a node.
func Programs(ctx context.Context, progress io.Writer) (map[components.Component]string, error) {
	return components.Build(ctx, components.Options{Components: components.Node(), Progress: progress})
}
