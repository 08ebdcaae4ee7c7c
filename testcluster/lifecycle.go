// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// portAttempts is how often a component is started if other processes take its
// port.
const portAttempts = 5

// StartComponent starts a component that was stopped or killed, on the same
// port and data, and returns when it is ready.
func (c *Cluster) StartComponent(ctx context.Context, component Component) error {
	if !c.options.runs(component) {
		return fmt.Errorf("starting %s: it is not part of this cluster", component)
	}
	return c.startOnPort(ctx, component)
}

// StopComponent stops a component with SIGTERM, kills it if it takes too long,
// and returns when it has ended. It does nothing if the component is not running.
func (c *Cluster) StopComponent(component Component) {
	if p := c.process(component); p != nil {
		p.stop()
	}
}

// KillComponent kills a component (SIGKILL) and returns when it has ended. It
// does nothing if the component is not running.
func (c *Cluster) KillComponent(component Component) {
	if p := c.process(component); p != nil {
		p.kill()
	}
}

// RestartComponent stops a component, if it is running, and starts it again.
func (c *Cluster) RestartComponent(ctx context.Context, component Component) error {
	c.StopComponent(component)
	return c.StartComponent(ctx, component)
}

// WaitReady waits until all components that have not been stopped or killed are
// ready, and pods can be created. Start and StartComponent do the same.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, component := range known() {
		if !c.active(component) {
			continue
		}
		if err := c.awaitReady(ctx, c.process(component)); err != nil {
			return err
		}
	}
	return c.awaitDefaultServiceAccount(ctx)
}

// active reports whether the component has been started, and not been stopped or killed.
func (c *Cluster) active(component Component) bool {
	p := c.process(component)
	return p != nil && !p.stopping.Load()
}

// PID returns the process ID of a component, or 0 if it is not running.
func (c *Cluster) PID(component Component) int {
	if p := c.process(component); p != nil && p.running() {
		return p.command.Process.Pid
	}
	return 0
}

// LogFile returns the path of a component's log, which continues through
// restarts.
func (c *Cluster) LogFile(component Component) string {
	return c.file("logs/" + string(component) + ".log")
}

// startFirst starts a component for the first time, on a free port unless the
// user chose one.
func (c *Cluster) startFirst(ctx context.Context, component Component) error {
	for attempt := 1; ; attempt++ {
		port := 0
		if component == APIServer {
			port = c.options.APIServerPort
		}
		chosen := port != 0
		if !chosen {
			var err error
			if port, err = c.choosePort(); err != nil {
				return fmt.Errorf("starting %s: %w", component, err)
			}
		}
		c.setPort(component, port)
		err := c.startOnPort(ctx, component)
		if err == nil || chosen || attempt == portAttempts || !lostPort(err) {
			return err
		}
		c.progress.Line("port %d is in use by another process; starting %s on another port", port, component)
	}
}

// startOnPort starts a component on the port set for it and waits until it is
// ready. If that fails it is not running.
func (c *Cluster) startOnPort(ctx context.Context, component Component) error {
	c.progress.Update("starting %s", component)
	p, err := c.launch(component)
	if err != nil {
		return fmt.Errorf("starting %s: %w", component, err)
	}
	if err := c.awaitReady(ctx, p); err != nil {
		p.kill()
		return fmt.Errorf("starting %s: %w", component, err)
	}
	go func() {
		<-p.done
		if !p.stopping.Load() {
			c.end(p.exitError())
		}
	}()
	return nil
}

// launch starts a component's process.
func (c *Cluster) launch(component Component) (*process, error) {
	command := exec.Command(c.binaries[component], c.arguments(component)...)
	command.Dir = c.dir.path
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		// Stop may already be waiting for the processes that it found.
		return nil, errStopped
	default:
	}
	if p := c.processes[component]; p != nil && p.running() {
		return nil, errors.New("it is running")
	}
	p, err := startProcess(c.group, component, command, c.LogFile(component))
	if err != nil {
		return nil, err
	}
	c.processes[component] = p
	return p, nil
}

// process returns the latest process of a component, or nil if it has had none.
func (c *Cluster) process(component Component) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[component]
}

func (c *Cluster) port(component Component) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports[component]
}

func (c *Cluster) setPort(component Component, port int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports[component] = port
}
