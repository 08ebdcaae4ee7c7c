// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// Lists of all pods of a node are made at this rate, whatever for, one at a time.
const (
	podListRate    = 10 // a second
	podListTimeout = 10 * time.Second
)

// Nodes are inspected again after inspectAgain where they were not idle, and
// after inspectRetry where their pods could not be listed.
const (
	inspectAgain = 10 * time.Minute
	inspectRetry = time.Minute
)

// pacedPods lists pods of nodes at a rate that is one for the process.
type pacedPods struct {
	cluster.NodePods
	limiter *rate.Limiter
	clock   clock.PassiveClock
}

func newPacedPods(p cluster.NodePods, c clock.PassiveClock) *pacedPods {
	return &pacedPods{NodePods: p, limiter: rate.NewLimiter(podListRate, 1), clock: c}
}

// list waits for its turn and lists all pods of a node.
func (p *pacedPods) list(ctx context.Context, node string) (*gate.PodList, error) {
	if err := p.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, podListTimeout)
	defer cancel()
	at := p.clock.Now()
	pods, err := p.List(ctx, node)
	if err != nil {
		return nil, err
	}
	return &gate.PodList{At: at, Pods: pods}, nil
}

// inspector looks at all pods of nodes that a decision wants to see (see
// gate.WantPods). It does so apart from the workers, which never wait for it:
// when a node has been inspected, it is decided about anew. Losing what the
// inspector knows costs no more than another look.
type inspector struct {
	pods *pacedPods
	// wake has a node decided about.
	wake func(node string)
	log  logr.Logger

	mu sync.Mutex
	// queue are the nodes that are to be inspected, in turn; waiting are these and
	// the one that is being inspected.
	queue   []string
	waiting map[string]bool
	// tried are nodes that only a dry run wants to see: when no other waits.
	tried []string
	// seen are lists that no decision has been made by yet.
	seen map[string]*gate.PodList
	// notBefore is when nodes may be inspected again that could not be, and
	// notIdle when there is a point in looking again whether a node is idle.
	notBefore, notIdle map[string]time.Time
	more               chan struct{}
	failed             bool // the last node could not be inspected
}

func newInspector(pods *pacedPods, wake func(string), log logr.Logger) *inspector {
	return &inspector{
		pods: pods, wake: wake, log: log, more: make(chan struct{}, 1),
		waiting: make(map[string]bool), seen: make(map[string]*gate.PodList),
		notBefore: make(map[string]time.Time), notIdle: make(map[string]time.Time),
	}
}

// ask has a node inspected, or says how long that has to wait. Zero means that
// the node will be decided about when it has been inspected. To confirm what was
// done to a node, it does not matter that it is known not to be idle.
//
// What a dry run asks for is done when nobody else waits.
func (i *inspector) ask(node string, now time.Time, confirm, dryRun bool) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	until := i.notBefore[node]
	if busy := i.notIdle[node]; !confirm && busy.After(until) {
		until = busy
	}
	if wait := until.Sub(now); wait > 0 {
		return wait
	}
	delete(i.notBefore, node)
	if !confirm {
		delete(i.notIdle, node)
	}
	i.enqueue(node, dryRun)
	select {
	case i.more <- struct{}{}:
	default:
	}
	return 0
}

// enqueue puts a node into the queue that it belongs in, if it does not wait in
// that or in a better one.
func (i *inspector) enqueue(node string, dryRun bool) {
	switch {
	case i.waiting[node] && dryRun:
	case dryRun:
		i.tried = append(i.tried, node)
	case !i.waiting[node]:
		i.queue = append(i.queue, node)
	default:
		if at := slices.Index(i.tried, node); at >= 0 {
			i.tried, i.queue = slices.Delete(i.tried, at, at+1), append(i.queue, node)
		}
	}
	i.waiting[node] = true
}

// later puts the next look whether a node is idle off, and returns for how long.
func (i *inspector) later(node string, now time.Time, by time.Duration) time.Duration {
	by = wait.Jitter(by, 0.1)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.notIdle[node] = now.Add(by)
	return by
}

// take returns what was seen of a node. It is good for one decision.
func (i *inspector) take(node string) *gate.PodList {
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := i.seen[node]
	delete(i.seen, node)
	return seen
}

// forget drops what is kept of a node that is gone, or that has changed so much
// that it may be inspected again at once.
func (i *inspector) forget(node string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.seen, node)
	delete(i.notBefore, node)
	delete(i.notIdle, node)
}

// run works until the context ends.
func (i *inspector) run(ctx context.Context) {
	for {
		node, ok := i.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-i.more:
			}
			continue
		}
		list, err := i.pods.list(ctx, node)
		if ctx.Err() != nil {
			return
		}
		i.note(node, list, err)
		i.wake(node)
	}
}

func (i *inspector) next() (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, queue := range []*[]string{&i.queue, &i.tried} {
		if len(*queue) > 0 {
			node := (*queue)[0]
			*queue = (*queue)[1:]
			return node, true
		}
		*queue = nil
	}
	return "", false
}

// note takes note of a look. It logs the first failure of a row.
func (i *inspector) note(node string, list *gate.PodList, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, node)
	if err != nil {
		i.notBefore[node] = i.pods.clock.Now().Add(wait.Jitter(inspectRetry, 0.1))
		if !i.failed && !errors.Is(err, context.Canceled) {
			i.log.Error(err, "cannot inspect node, retrying", "node", node)
		}
	} else {
		i.seen[node] = list
	}
	i.failed = err != nil
}
