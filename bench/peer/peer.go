// SPDX-License-Identifier: Apache-2.0

// Package peer runs other programs that remove taints from nodes, and measures them beside
// nodegate. Which programs these are is specified by files of the user.
package peer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/processgroup"
)

// A Peer is a program that removes a taint from a node when the daemon of the benchmark is
// ready there, the DaemonSet "agent" in the namespace "bench", or a CSI driver is registered.
type Peer struct {
	// Name identifies the peer.
	Name string `json:"name"`
	// Program is the path of the program. It defaults to the environment variable
	// PEER_<name>.
	Program string `json:"program"`
	// Arguments and Environment, such as "A=b", may contain $(KUBECONFIG), the path of a
	// kubeconfig with all permissions.
	Arguments   []string `json:"arguments"`
	Environment []string `json:"environment"`
	// Taint is the taint that the peer removes, such as "example.com/agent:NoSchedule" or
	// "example.com/agent=true:NoSchedule".
	Taint string `json:"taint"`
	// CSIDriver is the name of the CSI driver that the peer waits for, if it does not wait for
	// the DaemonSet.
	CSIDriver string `json:"csiDriver"`
	// Objects is a file of objects that are created before the peer is started, such as its
	// CRDs. A relative path is relative to the peer's file.
	Objects string `json:"objects"`
}

// Load reads a peer's file.
func Load(file string) (*Peer, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a peer: %w", err)
	}
	p := &Peer{}
	if err := yaml.UnmarshalStrict(content, p); err != nil {
		return nil, fmt.Errorf("reading peer %s: %w", file, err)
	}
	p.Program = cmp.Or(p.Program, os.Getenv("PEER_"+p.Name))
	if p.Objects != "" && !filepath.IsAbs(p.Objects) {
		p.Objects = filepath.Join(filepath.Dir(file), p.Objects)
	}
	if _, err := ParseTaint(p.Taint); err != nil {
		return nil, fmt.Errorf("reading peer %s: %w", file, err)
	}
	switch {
	case p.Name == "":
		return nil, fmt.Errorf("reading peer %s: it has no name", file)
	case p.Program == "":
		return nil, fmt.Errorf("reading peer %s: set program, or the environment variable PEER_%s", file, p.Name)
	}
	return p, nil
}

// ParseTaint parses a taint such as "example.com/agent:NoSchedule".
func ParseTaint(text string) (corev1.Taint, error) {
	name, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(name, "=")
	taint := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	known := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if key == "" || !slices.Contains(known, taint.Effect) {
		return taint, fmt.Errorf("taint %q is invalid: it must be like example.com/agent:NoSchedule", text)
	}
	return taint, nil
}

// A Process is a running peer.
type Process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// Start starts the peer, which does not outlive this process. The caller must stop it.
func (p *Peer) Start(c *testcluster.Cluster, kubeconfig string) (*Process, error) {
	process, err := p.start(c, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("starting peer %s: %w", p.Name, err)
	}
	return process, nil
}

func (p *Peer) start(c *testcluster.Cluster, kubeconfig string) (*Process, error) {
	process := &Process{ended: make(chan struct{})}
	process.command = exec.Command(p.Program, expand(p.Arguments, kubeconfig)...)
	process.command.Env = append(os.Environ(), expand(p.Environment, kubeconfig)...)
	log, err := os.Create(filepath.Join(c.Dir(), "logs", "peer-"+p.Name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	process.command.Stdout, process.command.Stderr = log, log
	if err := c.StartProcess(process.command); err != nil {
		return nil, err
	}
	go func() {
		_ = process.command.Wait() // peers end in different ways
		close(process.ended)
	}()
	return process, nil
}

// expand replaces the variable for the kubeconfig.
func expand(texts []string, kubeconfig string) []string {
	expanded := make([]string, len(texts))
	for i, text := range texts {
		expanded[i] = strings.ReplaceAll(text, "$(KUBECONFIG)", kubeconfig)
	}
	return expanded
}

// PID returns the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// Stop stops the peer and returns when it has ended.
func (p *Process) Stop() error {
	if !processgroup.Stop(p.command.Process, p.ended, await.Silence) {
		return errors.New("the peer did not stop after SIGTERM and was killed")
	}
	return nil
}
