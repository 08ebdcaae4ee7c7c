// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/internal/testbed"
)

// replica is one process of nodegate behind a proxy. If it ends, it is restarted, as by a
// kubelet.
type replica struct {
	site      *site
	proxy     *faultproxy.Proxy
	arguments []string
	// identity is the holder identity of a candidate in the Lease, and program the path of
	// the program, if it is not the installed one.
	identity, program string
	// away is held while the replica must not be restarted.
	away sync.Mutex
	// writes are the times of its patch requests for Nodes, if they are recorded.
	writes timeline
	// starts counts processes, and kills counts processes ended by SIGKILL.
	starts, kills atomic.Int64

	mu      sync.Mutex
	process *testbed.Controller
	stopped bool
	// supervised is closed when the replica is no longer restarted.
	supervised chan struct{}
}

func newReplica(s *site, program string, arguments []string) (*replica, error) {
	proxy, err := faultproxy.New(s.identity)
	if err != nil {
		return nil, err
	}
	return &replica{site: s, proxy: proxy, program: program, arguments: arguments, supervised: make(chan struct{})}, nil
}

// run starts and supervises the process, and waits until it is ready.
func (r *replica) run(ctx context.Context) error {
	if err := r.launch(); err != nil {
		close(r.supervised)
		return err
	}
	go r.supervise()
	return r.current().AwaitReady(ctx)
}

func (r *replica) current() *testbed.Controller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// launch starts a process, unless the replica has been stopped.
func (r *replica) launch() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return errStopped
	}
	installation := *r.site.installation
	installation.Program = cmp.Or(r.program, installation.Program)
	process, err := testbed.StartControllerAs(r.site.cluster, &installation, r.proxy.Config(), r.arguments...)
	if err != nil {
		return err
	}
	r.starts.Add(1)
	r.process = process
	return nil
}

var errStopped = errors.New("the replica was stopped")

// restartsAfter is the minimum time before the restart of a process.
const restartsAfter = 200 * time.Millisecond

func (r *replica) supervise() {
	defer close(r.supervised)
	for {
		<-r.current().Done()
		// A kubelet increases the delay if a process ends repeatedly.
		if time.Since(r.current().Started) < restartsAfter {
			<-time.After(restartsAfter)
		}
		r.away.Lock()
		r.away.Unlock() //nolint:staticcheck // it only waits
		if err := r.launch(); err != nil {
			if !errors.Is(err, errStopped) {
				r.site.report.failed(err)
			}
			return
		}
	}
}

// kill ends the process by SIGKILL. It is restarted.
func (r *replica) kill() {
	r.kills.Add(1)
	r.current().Kill()
}

// signal sends the process a signal.
func (r *replica) signal(s syscall.Signal) { _ = syscall.Kill(r.current().PID(), s) }

// recordWrites records the time of each patch request of the replica for a Node.
func (r *replica) recordWrites() {
	r.proxy.Follow(faultproxy.Plan{Request: func(q faultproxy.Request) faultproxy.RequestFault {
		if q.Verb == "patch" && q.Resource == "nodes" {
			r.writes.add(time.Now())
		}
		return faultproxy.RequestFault{}
	}})
}

// timeline is a list of times in ascending order. It may be used concurrently.
type timeline struct {
	mu    sync.Mutex
	times []time.Time
}

func (l *timeline) add(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, t)
}

// firstAfter returns the first time after t, and false if there is none.
func (l *timeline) firstAfter(t time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.times, t.Before)
	if i < 0 {
		return time.Time{}, false
	}
	return l.times[i], true
}

// lastBefore returns the last time before t, and false if there is none.
func (l *timeline) lastBefore(t time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range slices.Backward(l.times) {
		if at.Before(t) {
			return at, true
		}
	}
	return time.Time{}, false
}

// stop ends the replica. It may be called more than once.
func (r *replica) stop() error {
	r.mu.Lock()
	r.stopped = true
	process := r.process
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	err := process.Stop()
	<-r.supervised
	return err
}
