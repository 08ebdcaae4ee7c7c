// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

const (
	// bypassSettles is how long after an opening its bypassed pods are looked for:
	// by then kubelets have told of what they started before.
	bypassSettles = 5 * time.Second
	// bypassTries is how often evictions are tried, at intervals from
	// bypassRetryMin, doubled each time, to bypassRetryMax: for ten minutes.
	bypassTries    = 12
	bypassRetryMin = 5 * time.Second
	bypassRetryMax = time.Minute
	// evictRate is how many evictions a second the process asks for.
	evictRate = 5
	// evictTimeout bounds one of them.
	evictTimeout = 10 * time.Second
	// bypassWorkers is how many nodes are worked on at a time: evictions that
	// take long must not keep other nodes' pods from being found.
	bypassWorkers = 4
	// bypassNamed is how many pods are named, where more may be meant.
	bypassNamed = 10
)

// bypass looks, after a gate has opened on a node, for pods that had started
// there while it was closed, and reports or evicts them. It works apart from
// the workers. What it has in hand when the process ends is lost: the pods are
// not looked for again.
type bypass struct {
	*Controller
	evicts  *rate.Limiter
	queue   workqueue.TypedDelayingInterface[bypassKey]
	mu      sync.Mutex
	pending map[bypassKey]*opening
}

type bypassKey struct{ node, gate string }

// opening is one opening of a gate on a node, in one of its boots.
type opening struct {
	uid     types.UID
	boot    string
	closure gate.Closure
	// tries counts how often its pods have been listed.
	tries int
	told  bool
}

func newBypass(c *Controller) *bypass {
	return &bypass{
		Controller: c, evicts: rate.NewLimiter(evictRate, 1),
		queue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[bypassKey]{Clock: c.clock}),
		pending: make(map[bypassKey]*opening),
	}
}

// opened takes note that a gate has opened on a node.
func (b *bypass) opened(n *gate.Node, v *gate.Verdict) {
	key := bypassKey{node: n.Name, gate: v.Gate}
	b.mu.Lock()
	b.pending[key] = &opening{uid: n.UID, boot: n.BootID, closure: *v.Closure}
	b.mu.Unlock()
	b.queue.AddAfter(key, bypassSettles)
}

// run works until the context ends.
func (b *bypass) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, b.queue.ShutDown)
	defer stop()
	var running sync.WaitGroup
	for range bypassWorkers {
		running.Go(func() {
			for {
				key, shutdown := b.queue.Get()
				if shutdown {
					return
				}
				b.workOn(ctx, key)
				b.queue.Done(key)
			}
		})
	}
	running.Wait()
}

// workOn looks for the pods of one opening, and has them looked for again as
// long as some are to be evicted.
func (b *bypass) workOn(ctx context.Context, key bypassKey) {
	b.mu.Lock()
	o := b.pending[key]
	b.mu.Unlock()
	if o == nil || ctx.Err() != nil {
		return
	}
	if b.attempt(ctx, key, o) {
		after := min(bypassRetryMin<<min(o.tries, 10), bypassRetryMax)
		o.tries++
		b.queue.AddAfter(key, after)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending[key] == o { // and no later opening
		delete(b.pending, key)
	}
}

// attempt does what can be done now, and tells whether there is more to do.
func (b *bypass) attempt(ctx context.Context, key bypassKey, o *opening) bool {
	policy, n, stands := b.stands(key, o)
	if !stands {
		return false
	}
	if b.rights.lacks(listPods) {
		return o.tries < bypassTries
	}
	list, err := b.pods.list(ctx, key.node)
	if err != nil {
		if o.tries == 0 && ctx.Err() == nil {
			b.log.Error(err, "cannot look for bypassed pods, retrying", "gate", key.gate, "node", key.node)
		}
		return o.tries < bypassTries
	}
	var all, evictable []*gate.BoundPod
	for i := range list.Pods {
		if p := &list.Pods[i]; o.closure.Bypassed(p) {
			all = append(all, p)
			if p.Evictable() {
				evictable = append(evictable, p)
			}
		}
	}
	b.tell(key, n, o, policy, all)
	if policy != v1alpha1.BypassedEvict || b.rights.lacks(evictPods) {
		return false
	}
	return b.evict(ctx, key, n, o, evictable)
}

// stands tells whether the opening is still what the node stands by: the same
// boot of the same Node, and the gate open since. It also returns what the gate
// says now of bypassed pods.
func (b *bypass) stands(key bypassKey, o *opening) (v1alpha1.BypassedPods, *gate.Node, bool) {
	ng, known := b.set.Load().declared[key.gate]
	facts, there := b.feed.Facts(key.node)
	n := &facts.Node
	if !known || !ng.Spec.Enforces() || !there || n.UID != o.uid || n.BootID != o.boot {
		return "", nil, false
	}
	// A gate that has closed since, or closed and opened, says so by the time.
	record, err := gate.ParseRecord(n.Records[key.gate])
	if err != nil || record.Since.After(o.closure.Until) {
		return "", nil, false
	}
	policy := ng.Spec.BypassedPods
	return policy, n, policy == v1alpha1.BypassedReport || policy == v1alpha1.BypassedEvict
}

// tell tells, once, of the pods that bypassed the gate.
func (b *bypass) tell(key bypassKey, n *gate.Node, o *opening, policy v1alpha1.BypassedPods, pods []*gate.BoundPod) {
	if o.told || len(pods) == 0 {
		return
	}
	o.told = true
	b.metrics.bypassed(key.gate, len(pods))
	names := namesOf(pods)
	b.log.Info("pods had started while the gate was closed", "gate", key.gate, "node", key.node, "pods", len(pods), "names", names)
	b.events.warn(n, b.set.Load().reference(key.gate), v1alpha1.EventBypassedPods, string(policy), fmt.Sprintf(
		"%s had started while gate %s was closed, and do not tolerate its taint: %s", count(len(pods)), key.gate, names))
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}

// namesOf names pods, some of them if there are many.
func namesOf(pods []*gate.BoundPod) string {
	names := few{most: bypassNamed}
	for _, p := range pods {
		names.addIf(true, p.Namespace+"/"+p.Name)
	}
	return names.String()
}

// evict evicts pods, and tells whether it is worth another try.
func (b *bypass) evict(ctx context.Context, key bypassKey, n *gate.Node, o *opening, pods []*gate.BoundPod) bool {
	remain, err := b.evictAll(ctx, key, pods)
	if err != nil && o.tries == 0 && ctx.Err() == nil {
		b.log.Error(err, "cannot evict bypassed pods, retrying", "gate", key.gate, "node", key.node)
	}
	switch {
	case len(remain) == 0:
		return false
	case o.tries < bypassTries:
		return true
	}
	b.log.Info("gave up evicting bypassed pods", "gate", key.gate, "node", key.node, "pods", len(remain))
	b.events.warn(n, b.set.Load().reference(key.gate), v1alpha1.EventBypassedPodsRemain, v1alpha1.EventActionEvict, fmt.Sprintf(
		"gave up evicting %s, which had started while gate %s was closed: %s", count(len(remain)), key.gate, namesOf(remain)))
	return false
}

// evictAll evicts pods, and returns those that remain, with the first error that
// is not just a matter of time.
func (b *bypass) evictAll(ctx context.Context, key bypassKey, pods []*gate.BoundPod) ([]*gate.BoundPod, error) {
	var remain []*gate.BoundPod
	var failure error
	for _, p := range pods {
		if b.evicts.Wait(ctx) != nil {
			return nil, nil
		}
		outcome, err := b.evictOne(ctx, p)
		b.metrics.evicted(key.gate, outcome)
		switch outcome {
		case cluster.Evicted:
			b.log.Info("bypassed pod evicted", "gate", key.gate, "node", key.node, "namespace", p.Namespace, "pod", p.Name)
			continue
		case cluster.EvictionDenied, cluster.EvictionFailed:
			failure = cmp.Or(failure, err)
		}
		remain = append(remain, p)
	}
	return remain, failure
}

func (b *bypass) evictOne(ctx context.Context, p *gate.BoundPod) (cluster.Eviction, error) {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	return b.pods.Evict(ctx, p)
}
