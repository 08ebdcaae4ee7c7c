// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/freeport"
	"github.com/nodegate/nodegate/testcluster/processgroup"
)

// A Controller is nodegate's controller as a child process.
type Controller struct {
	// LogFile is the path of its log.
	LogFile string
	// Metrics is the address of its metrics endpoint.
	Metrics string
	// Started is the moment just before its process was started.
	Started time.Time

	command *exec.Cmd
	health  string
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; valid once done is closed
}

// StartController starts the controller with only the permissions of nodegate's
// ServiceAccount. It runs until Stop is called, at the longest until this process
// ends. Further arguments are added to its command line.
func StartController(ctx context.Context, c *testcluster.Cluster, i *Installation, arguments ...string) (*Controller, error) {
	config, err := c.ServiceAccount(ctx, i.ServiceAccount.Namespace, i.ServiceAccount.Name)
	if err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	return StartControllerAs(c, i, config, arguments...)
}

// StartControllerAs is like StartController, but uses the given client
// configuration of that ServiceAccount, which may connect to the API server
// through a proxy.
func StartControllerAs(c *testcluster.Cluster, i *Installation, config *rest.Config, arguments ...string) (*Controller, error) {
	p := &Controller{done: make(chan struct{})}
	var err error
	for _, address := range []*string{&p.Metrics, &p.health} {
		if *address, err = freeport.Address(); err != nil {
			return nil, fmt.Errorf("starting the controller: %w", err)
		}
	}
	// Several controllers may run at a time.
	name := "nodegate-" + p.Metrics[strings.LastIndex(p.Metrics, ":")+1:]
	p.LogFile = filepath.Join(c.Dir(), "logs", name+".log")
	kubeconfig := filepath.Join(c.Dir(), name+".kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	p.command = exec.Command(i.Program, append([]string{"controller",
		"--kubeconfig", kubeconfig,
		"--namespace", i.ServiceAccount.Namespace,
		"--allowed-taint-keys", strings.Join(i.AllowedKeys, ","),
		"--metrics-bind-address", p.Metrics,
		"--health-probe-bind-address", p.health}, arguments...)...)
	if err := p.start(c); err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	return p, nil
}

func (p *Controller) start(c *testcluster.Cluster) error {
	log, err := os.Create(p.LogFile)
	if err != nil {
		return err
	}
	defer log.Close()
	p.command.Stdout, p.command.Stderr = log, log
	p.Started = time.Now()
	if err := c.StartProcess(p.command); err != nil {
		return err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.done)
	}()
	return nil
}

// Done is closed when the process has ended.
func (p *Controller) Done() <-chan struct{} { return p.done }

// PID returns the process ID.
func (p *Controller) PID() int { return p.command.Process.Pid }

// AwaitReady waits until the controller reports that its caches are synced. It
// fails if the controller ends.
func (p *Controller) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.done:
			cancel(p.ExitError())
		case <-ctx.Done():
		}
	}()
	return await.Until(ctx, "the controller", func(ctx context.Context) error {
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
			return fmt.Errorf("/readyz returned %s", response.Status)
		}
		return nil
	})
}

// ExitError returns an error that describes the controller's unexpected end.
func (p *Controller) ExitError() error {
	last := "nothing"
	if log, err := os.ReadFile(p.LogFile); err == nil && len(bytes.TrimSpace(log)) > 0 {
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		last = lines[len(lines)-1]
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("nodegate's controller ended (%s); its last log line: %s", how, last)
}

// Kill ends the controller by SIGKILL, and returns when it has ended.
func (p *Controller) Kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.done
}

// Stop stops the controller and returns when it has ended.
func (p *Controller) Stop() error {
	if !processgroup.Stop(p.command.Process, p.done, await.Silence) {
		return errors.New("nodegate's controller did not stop after SIGTERM and was killed")
	}
	return nil
}
