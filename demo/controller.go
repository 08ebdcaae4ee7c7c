// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nodegate/nodegate/cluster"
)

// stopLimit is how long the controller may take to stop.
const stopLimit = 10 * time.Second

// A controllerProcess is nodegate's controller as a child process.
type controllerProcess struct {
	command *exec.Cmd
	logFile string
	metrics string // the address where it serves them
	health  string
	done    chan struct{} // closed when it has ended
	err     error         // how; valid once done is closed
}

// startController starts the controller with the rights of nodegate's
// ServiceAccount and nothing else.
func startController(ctx context.Context, c *cluster.Cluster, i *installation) (*controllerProcess, error) {
	config, err := c.ServiceAccount(ctx, i.serviceAccount.Namespace, i.serviceAccount.Name)
	if err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	kubeconfig := filepath.Join(c.Dir(), "nodegate.kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	p := &controllerProcess{logFile: filepath.Join(c.Dir(), "logs", "nodegate.log"), done: make(chan struct{})}
	for _, address := range []*string{&p.metrics, &p.health} {
		if *address, err = freeAddress(); err != nil {
			return nil, fmt.Errorf("starting the controller: %w", err)
		}
	}
	p.command = exec.Command(i.program, "controller",
		"--kubeconfig", kubeconfig,
		"--namespace", i.serviceAccount.Namespace,
		"--allowed-taint-keys", strings.Join(i.allowedKeys, ","),
		"--metrics-bind-address", p.metrics,
		"--health-probe-bind-address", p.health)
	if err := p.start(c); err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	return p, nil
}

func (p *controllerProcess) start(c *cluster.Cluster) error {
	// The cluster's process group is killed when this process ends, whatever
	// ends it; and a Ctrl-C at the terminal does not reach it, so that it is
	// for us to stop things in order.
	group, err := syscall.Getpgid(c.PID(cluster.APIServer))
	if err != nil {
		return fmt.Errorf("finding the cluster's process group: %w", err)
	}
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	log, err := os.Create(p.logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	p.command.Stdout, p.command.Stderr = log, log
	if err := p.command.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.done)
	}()
	return nil
}

// awaitReady waits until the controller says that it observes all it needs.
func (p *controllerProcess) awaitReady(ctx context.Context) error {
	return await(ctx, "the controller", readyLimit, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz says %s", response.Status)
		}
		return nil
	})
}

// exitError says how the controller ended although nobody asked it to.
func (p *controllerProcess) exitError() error {
	last := "nothing"
	if log, err := os.ReadFile(p.logFile); err == nil && len(bytes.TrimSpace(log)) > 0 {
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		last = lines[len(lines)-1]
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("nodegate's controller ended (%s); its last words: %s", how, last)
}

// stop asks the controller to stop and returns when it has.
func (p *controllerProcess) stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return nil
	case <-time.After(stopLimit):
		_ = p.command.Process.Kill()
		<-p.done
		return errors.New("nodegate's controller did not stop when asked to, and was killed")
	}
}

// freeAddress returns a loopback address on which nobody listens at present.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
