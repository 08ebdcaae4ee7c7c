// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/testcluster/freeport"
	"github.com/nodegate/nodegate/testcluster/processgroup"
	"github.com/nodegate/nodegate/testcluster/progress"
)

var errStopped = errors.New("the cluster was stopped")

// A Cluster is a running control plane. Its methods may be called from several
// goroutines.
type Cluster struct {
	options     Options
	dir         *stateDir
	binaries    map[Component]string
	credentials *credentials
	group       *processgroup.Group
	progress    *progress.Progress
	choosePort  func() (int, error)

	stopOnce sync.Once
	stopErr  error
	keep     atomic.Bool
	done     chan struct{} // closed by the first unexpected end, and by Stop

	mu        sync.Mutex
	err       error // why done is closed; nil if by Stop
	ports     map[Component]int
	processes map[Component]*process
}

// Start starts a cluster and returns when it is ready: all components are ready,
// and pods can be created. The first time on a machine it builds the programs,
// which takes minutes (see Build). If it fails, nothing is left running.
//
// The context bounds the start only. Stop ends the cluster, and so does the
// end of this process.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := newCluster(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		if ctx.Err() == nil {
			c.end(err) // keeps the logs
		}
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// newCluster prepares a cluster without starting a process.
func newCluster(ctx context.Context, options Options) (*Cluster, error) {
	binaries, err := Build(ctx, options)
	if err != nil {
		return nil, err
	}
	if port := options.APIServerPort; port != 0 {
		if err := freeport.Check(freeport.Loopback, port); err != nil {
			return nil, fmt.Errorf("starting %s: %w; choose another port, or 0 for a free one", APIServer, err)
		}
	}
	dir, err := openStateDir(options.Dir)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		options:    options,
		dir:        dir,
		binaries:   binaries,
		progress:   progress.New(options.Progress),
		choosePort: freePort,
		done:       make(chan struct{}),
		ports:      map[Component]int{},
		processes:  map[Component]*process{},
	}, nil
}

// start starts all components.
func (c *Cluster) start(ctx context.Context) error {
	begin := time.Now()
	defer c.progress.Clear()
	var err error
	if c.credentials, err = loadCredentials(c.file("pki")); err != nil {
		return fmt.Errorf("creating credentials: %w", err)
	}
	if err := c.writeConfiguration(); err != nil {
		return err
	}
	if c.group, err = processgroup.New(); err != nil {
		return err
	}
	for _, component := range []Component{Etcd, APIServer} {
		if err := c.startFirst(ctx, component); err != nil {
			return err
		}
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	if err := c.startClients(ctx); err != nil {
		return err
	}
	c.progress.Line("cluster ready in %s", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// startClients starts, at the same time, the components that are clients of
// the API server.
func (c *Cluster) startClients(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	started := 0
	for _, component := range clients {
		if c.options.runs(component) {
			started++
			go func() { results <- c.startFirst(ctx, component) }()
		}
	}
	var first error
	for range started {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel() // the others are no longer needed
		}
	}
	if first != nil {
		return first
	}
	return c.awaitDefaultServiceAccount(ctx)
}

// Stop stops all components and waits for their end. A temporary directory is
// removed, unless a component had ended by itself, the start had failed, or
// Keep was called: then it stays for a day, for its logs. Stop may be called
// more than once.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		failed := c.Err() != nil
		c.end(nil)
		keep := (failed || c.keep.Load()) && c.group != nil // without a group, there are no logs
		if c.group != nil {
			c.stopProcesses(failed)
			// Kill everything that is still running.
			c.group.Kill()
		}
		if err := c.dir.close(keep); err != nil {
			c.stopErr = fmt.Errorf("closing the cluster's directory: %w", err)
		}
	})
	return c.stopErr
}

// Keep makes Stop leave a temporary directory where it is, but without etcd's
// data, for a day.
func (c *Cluster) Keep() { c.keep.Store(true) }

// stopProcesses stops the components in the reverse order of their start, so that
// no component loses one that it depends on. It stops the API server's clients at
// the same time. If the cluster has failed, it kills all components, because some
// would wait for a component that no longer runs.
func (c *Cluster) stopProcesses(failed bool) {
	for _, components := range [][]Component{clients, {APIServer}, {Etcd}} {
		var wait sync.WaitGroup
		for _, component := range components {
			p := c.process(component)
			switch {
			case p == nil:
			case failed:
				wait.Go(p.kill)
			default:
				wait.Go(p.stop)
			}
		}
		wait.Wait()
	}
}

// Done is closed when a component has ended by itself, or when Stop has been called.
// Err distinguishes the two.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err returns an *ExitError if a component ended by itself, and otherwise nil.
// StopComponent and KillComponent are not errors.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// endError returns the reason why Done is closed.
func (c *Cluster) endError() error {
	if err := c.Err(); err != nil {
		return err
	}
	return errStopped
}

// end closes Done with an error, or with nil if the end was requested. Only the
// first call has an effect.
func (c *Cluster) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		c.err = err
		close(c.done)
	}
}

// Dir returns the cluster's directory.
func (c *Cluster) Dir() string { return c.dir.path }

// AuditLog returns the path of the audit log, one JSON object per line, or ""
// if Options.Audit is off. The log contains every request that has been answered.
func (c *Cluster) AuditLog() string {
	if !c.options.Audit {
		return ""
	}
	return c.file("audit.log")
}

// file returns the path of a file in the cluster's directory.
func (c *Cluster) file(name string) string {
	return filepath.Join(c.dir.path, name)
}
