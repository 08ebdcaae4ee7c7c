// SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
)

// The maximum rate at which the pods of nodes are listed, for all purposes together. Lists
// are not concurrent.
const (
	podListRate    = 10 // a second
	podListTimeout = 10 * time.Second
)

// listValid is how long a list of pods can be used. While nothing is decided, because Nodes cannot
// be read, a list may become much older.
const listValid = 30 * time.Second

// Nodes are inspected again after inspectAgain if they were not idle, and after
// InspectRetry if their pods could not be listed.
const (
	inspectAgain = 10 * time.Minute
	InspectRetry = time.Minute
)

// PodLister lists the pods of nodes, one at a time and with a rate limit for the whole process.
type PodLister struct {
	boundpods.Client
	limiter *rate.Limiter
	clock   clock.PassiveClock
	// listing has an element while a list is in progress.
	listing chan struct{}
}

// NewPodLister returns a PodLister.
func NewPodLister(p boundpods.Client, c clock.PassiveClock) *PodLister {
	return &PodLister{Client: p, limiter: rate.NewLimiter(podListRate, 1), clock: c, listing: make(chan struct{}, 1)}
}

// list lists all pods of a node when no other list is in progress and the rate limit allows it.
func (p *PodLister) list(ctx context.Context, node string) (*gate.PodList, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case p.listing <- struct{}{}:
	}
	defer func() { <-p.listing }()
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

// Inspector lists all pods of nodes when a decision requires them (see gate.WantPods).
// Workers do not wait for it: when a node has been inspected, it is evaluated again. If
// the Inspector's state is lost, nodes are inspected once more.
type Inspector struct {
	pods *PodLister
	// wake triggers an evaluation of a node.
	wake func(node string)
	log  logr.Logger

	mu sync.Mutex
	// queue contains the nodes to inspect, in order. waiting also contains the one that is
	// being inspected.
	queue   []string
	waiting map[string]bool
	// needed contains functions that report whether a waiting node need still be inspected.
	needed map[string]func() bool
	// dryRuns contains the nodes that only a dry run needs. They are inspected while queue is
	// empty.
	dryRuns []string
	// lists contains the lists that no decision has used yet.
	lists map[string]*gate.PodList
	// notBefore contains the time of the next attempt for nodes that could not be inspected.
	// notIdle contains the time of the next check whether a node is idle.
	notBefore, notIdle map[string]time.Time
	more               chan struct{}
	failed             bool // whether the last inspection failed
}

// NewInspector returns an Inspector.
func NewInspector(pods *PodLister, wake func(string), log logr.Logger) *Inspector {
	return &Inspector{
		pods: pods, wake: wake, log: log, more: make(chan struct{}, 1),
		waiting: make(map[string]bool), needed: make(map[string]func() bool), lists: make(map[string]*gate.PodList),
		notBefore: make(map[string]time.Time), notIdle: make(map[string]time.Time),
	}
}

// Ask requests an inspection of a node. It returns how long the caller should wait before
// it asks again; zero means that the node is evaluated again as soon as it has been
// inspected, or need no longer be, which needed reports when it is the node's turn. A nil needed
// requests the check after a gate has closed on an idle node, which Later does not postpone. dryRun
// specifies that only a dry run needs the inspection.
func (i *Inspector) Ask(node string, now time.Time, needed func() bool, dryRun bool) time.Duration {
	confirm := needed == nil
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
	if _, waits := i.needed[node]; confirm {
		delete(i.needed, node)
	} else if waits || !i.waiting[node] { // otherwise, it is inspected anyway
		i.needed[node] = needed
	}
	i.enqueue(node, dryRun)
	select {
	case i.more <- struct{}{}:
	default:
	}
	return 0
}

// enqueue adds a node to the appropriate queue, unless it is already in that or in a
// better one.
func (i *Inspector) enqueue(node string, dryRun bool) {
	switch {
	case i.waiting[node] && dryRun:
	case dryRun:
		i.dryRuns = append(i.dryRuns, node)
	case !i.waiting[node]:
		i.queue = append(i.queue, node)
	default:
		if at := slices.Index(i.dryRuns, node); at >= 0 {
			i.dryRuns, i.queue = slices.Delete(i.dryRuns, at, at+1), append(i.queue, node)
		}
	}
	i.waiting[node] = true
}

// Later postpones the next inspection of a node that was not idle, and returns for how
// long.
func (i *Inspector) Later(node string, now time.Time) time.Duration {
	by := wait.Jitter(inspectAgain, 0.1)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.notIdle[node] = now.Add(by)
	return by
}

// Take returns the pods of a node, if they have been listed recently. The list is valid for one
// decision.
func (i *Inspector) Take(node string) *gate.PodList {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := i.lists[node]
	delete(i.lists, node)
	if list != nil && i.tooOld(list) {
		return nil
	}
	return list
}

func (i *Inspector) tooOld(list *gate.PodList) bool { return i.pods.clock.Since(list.At) > listValid }

// Forget drops the state of a node that was deleted, or that has changed so much that it
// may be inspected again immediately.
func (i *Inspector) Forget(node string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.lists, node)
	delete(i.notBefore, node)
	delete(i.notIdle, node)
}

// Run inspects nodes until the context ends.
func (i *Inspector) Run(ctx context.Context) {
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
		if !i.drop(node) {
			list, err := i.pods.list(ctx, node)
			if ctx.Err() != nil {
				return
			}
			i.note(node, list, err)
		}
		i.wake(node)
	}
}

// drop drops a node that need no longer be inspected, such as one that could not be closed because
// others have used up the budget meanwhile.
func (i *Inspector) drop(node string) bool {
	i.mu.Lock()
	needed := i.needed[node]
	delete(i.needed, node)
	i.mu.Unlock()
	if needed == nil || needed() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, node)
	return true
}

func (i *Inspector) next() (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, queue := range []*[]string{&i.queue, &i.dryRuns} {
		if len(*queue) > 0 {
			node := (*queue)[0]
			*queue = (*queue)[1:]
			return node, true
		}
		*queue = nil
	}
	return "", false
}

// note records the result of an inspection, and drops lists that no decision has used in time. It logs
// the first of consecutive failures.
func (i *Inspector) note(node string, list *gate.PodList, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, node)
	maps.DeleteFunc(i.lists, func(_ string, list *gate.PodList) bool { return i.tooOld(list) })
	if err != nil {
		i.notBefore[node] = i.pods.clock.Now().Add(wait.Jitter(InspectRetry, 0.1))
		if !i.failed && !errors.Is(err, context.Canceled) {
			i.log.Error(err, "cannot list the pods of a node, retrying", "node", node)
		}
	} else {
		i.lists[node] = list
	}
	i.failed = err != nil
}
