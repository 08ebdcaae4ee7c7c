// SPDX-License-Identifier: Apache-2.0

// Package bypass reports or evicts pods that started on a node while a gate was closed
// there, reports pods that the kubelet rejected meanwhile, and lists all pods of nodes that
// may have to be idle.
package bypass

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/telemetry"
)

const (
	// minSearchDelay is the least time between an opening and the search for its bypassed pods. By
	// then, kubelets have reported the pods that they started before the opening.
	minSearchDelay = 5 * time.Second
	// Tries is the number of attempts to evict. The interval between them grows from
	// retryMin to retryMax, so that they take ten minutes.
	Tries    = 12
	retryMin = 5 * time.Second
	retryMax = time.Minute
	// EvictRate is the maximum number of eviction requests a second.
	EvictRate = 5
	// evictTimeout limits the duration of one request.
	evictTimeout = 10 * time.Second
	// workers is the number of nodes that are processed concurrently, so that slow
	// evictions do not delay other nodes.
	workers = 4
)

// Handler searches, after a gate has opened on a node, for pods that started there, or were
// rejected, while it was closed. It reports them, or evicts those that started. It does not use the controller's workers.
// Its state is lost when the process ends: pods are not searched for again.
type Handler struct {
	Options
	evicts  *rate.Limiter
	queue   workqueue.TypedDelayingInterface[key]
	mu      sync.Mutex
	pending map[key]*opening
}

// Options are the dependencies of a Handler.
type Options struct {
	// Pods lists and evicts pods.
	Pods *PodLister
	// MayList and MayEvict report whether the controller is allowed to list and evict
	// pods.
	MayList, MayEvict func() bool
	// Gates returns the current gates.
	Gates func() *gateset.Set
	// Facts returns the facts about a node, or false if they are not known at the moment. Gone
	// reports whether the node is known not to exist.
	Facts func(node string) (gate.Facts, bool)
	Gone  func(node string) bool

	Events  *telemetry.Recorder
	Metrics *telemetry.Metrics
	Log     logr.Logger
	Clock   clock.WithTicker
}

type key struct{ node, gate string }

// opening is an opening of a gate on a node in one boot.
type opening struct {
	uid     types.UID
	boot    string
	closure gate.Closure
	// due is when its pods are searched for the first time.
	due time.Time
	// tries counts the attempts.
	tries int
	// reportedBypassed and reportedRejected report whether such pods have been reported.
	reportedBypassed, reportedRejected bool
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{
		Options: o, evicts: rate.NewLimiter(EvictRate, 1),
		queue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[key]{Clock: o.Clock}),
		pending: make(map[key]*opening),
	}
}

// Opened records that a gate has opened on a node.
func (b *Handler) Opened(n *gate.Node, v *gate.Verdict) {
	key, wait := key{node: n.Name, gate: v.Gate}, searchDelay(v.Closure)
	b.mu.Lock()
	b.pending[key] = &opening{uid: n.UID, boot: n.BootID, closure: *v.Closure, due: b.Clock.Now().Add(wait)}
	b.mu.Unlock()
	b.queue.AddAfter(key, wait)
}

// searchDelay returns how long after an opening the kubelet has reported what happened while the gate
// was closed.
func searchDelay(c *gate.Closure) time.Duration {
	if !c.NewBoot {
		return minSearchDelay
	}
	return max(minSearchDelay, c.From.Add(gate.RejectionLag).Sub(c.Until))
}

// Waiting returns the number of openings that are being processed.
func (b *Handler) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// Run processes openings until the context ends.
func (b *Handler) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, b.queue.ShutDown)
	defer stop()
	var running sync.WaitGroup
	for range workers {
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

// workOn processes one opening, and schedules another attempt while pods remain to be
// evicted.
func (b *Handler) workOn(ctx context.Context, key key) {
	b.mu.Lock()
	o := b.pending[key]
	b.mu.Unlock()
	if o == nil || ctx.Err() != nil {
		return
	}
	// The queue has one entry per key, which may have been added for an earlier opening.
	if left := o.due.Sub(b.Clock.Now()); left > 0 {
		b.queue.AddAfter(key, left)
		return
	}
	switch b.attempt(ctx, key, o) {
	case retry:
		after := min(retryMin<<min(o.tries, 10), retryMax)
		o.tries++
		b.queue.AddAfter(key, after)
		return
	case later:
		b.queue.AddAfter(key, retryMin)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending[key] == o { // and no later opening
		delete(b.pending, key)
	}
}

// next is what happens to an opening after an attempt.
type next int

const (
	done  next = iota
	retry      // another attempt is needed
	later      // nothing could be tried yet
)

// retryIf returns retry if another attempt is needed and there are tries left.
func (o *opening) retryIf(needed bool) next {
	if needed && o.tries < Tries {
		return retry
	}
	return done
}

// attempt lists the pods, reports those that bypassed the gate or were rejected, and evicts those
// that bypassed it.
func (b *Handler) attempt(ctx context.Context, key key, o *opening) next {
	policy, n, is := b.current(key, o)
	switch {
	case is == unknown:
		return later
	case is == obsolete:
		return done
	case !b.MayList():
		return o.retryIf(true)
	}
	list, err := b.Pods.list(ctx, key.node)
	if err != nil {
		if o.tries == 0 && ctx.Err() == nil {
			b.Log.Error(err, "cannot list bypassed pods, retrying", "gate", key.gate, "node", key.node)
		}
		return o.retryIf(true)
	}
	f := find(&o.closure, list.Pods)
	if news := o.unreported(f); news.any() {
		b.report(key, n, policy, &news)
	}
	if policy != v1alpha1.BypassedEvict || !b.MayEvict() {
		return done
	}
	return o.retryIf(b.evict(ctx, key, n, o, f.evictable()))
}

// unreported returns the kinds of pods that have not been reported yet, and remembers that they
// are. Each kind is reported once, by the first search that finds some.
func (o *opening) unreported(f found) (news found) {
	if f.bypassed.any() && !o.reportedBypassed {
		news.bypassed, o.reportedBypassed = f.bypassed, true
	}
	if f.rejected.any() && !o.reportedRejected {
		news.rejected, o.reportedRejected = f.rejected, true
	}
	return news
}

// openingState is whether an opening is still current.
type openingState int

const (
	obsolete openingState = iota
	unknown               // Nodes are being listed again
	current
)

// current returns the gate's policy for bypassed pods and the node, if the opening is still
// current: it is the same boot of the same Node, and the gate has been open since.
func (b *Handler) current(key key, o *opening) (v1alpha1.BypassedPods, *gate.Node, openingState) {
	gates := b.Gates()
	facts, known := b.Facts(key.node)
	n := &facts.Node
	switch {
	case !gates.HandlesBypassed(key.gate):
		return "", nil, obsolete
	case !known && !b.Gone(key.node):
		return "", nil, unknown
	case !known || n.UID != o.uid || n.BootID != o.boot:
		return "", nil, obsolete
	}
	// If the gate has closed since, the record's time is later, even if it has opened again.
	record, err := gate.ParseRecord(n.Records[key.gate])
	if err != nil || record.Override == v1alpha1.StateClosed || record.Since.After(o.closure.Until) {
		return "", nil, obsolete
	}
	return gates.Declared[key.gate].Spec.BypassedPods, n, current
}

// evict evicts pods, and returns whether another attempt is needed.
func (b *Handler) evict(ctx context.Context, key key, n *gate.Node, o *opening, all pods) bool {
	remain, err := b.evictAll(ctx, key, o, all)
	if err != nil && o.tries == 0 && ctx.Err() == nil {
		b.Log.Error(err, "cannot evict bypassed pods, retrying", "gate", key.gate, "node", key.node)
	}
	switch {
	case len(remain) == 0:
		return false
	case o.tries < Tries:
		return true
	}
	b.Log.Info("gave up evicting bypassed pods", "gate", key.gate, "node", key.node, "pods", len(remain))
	b.Events.Warning(n, telemetry.GateReference(b.Gates().Object(key.gate)), v1alpha1.EventBypassedPodsRemain, v1alpha1.EventActionEvict, fmt.Sprintf(
		"gave up evicting %s, which had started while gate %s was closed: %s", count(len(remain)), key.gate, remain.names()))
	return false
}

// evictAll evicts pods, and returns those that remain, with the first error that is not
// expected to be temporary. It ends as soon as the opening is no longer current, because a turn
// to evict can take minutes to come.
func (b *Handler) evictAll(ctx context.Context, key key, o *opening, all pods) (pods, error) {
	var remain pods
	var failure error
	for i, p := range all {
		if b.evicts.Wait(ctx) != nil {
			return nil, nil
		}
		switch policy, _, is := b.current(key, o); {
		case is == unknown:
			return append(remain, all[i:]...), failure
		case is == obsolete || policy != v1alpha1.BypassedEvict:
			return nil, nil
		}
		outcome, err := b.evictOne(ctx, p)
		b.Metrics.Evicted(key.gate, outcome)
		switch outcome {
		case boundpods.Evicted:
			b.Log.Info("bypassed pod evicted", "gate", key.gate, "node", key.node, "namespace", p.Namespace, "pod", p.Name)
			continue
		case boundpods.EvictionDenied, boundpods.EvictionFailed:
			failure = cmp.Or(failure, err)
		}
		remain = append(remain, p)
	}
	return remain, failure
}

func (b *Handler) evictOne(ctx context.Context, p *gate.BoundPod) (boundpods.Eviction, error) {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	return b.Pods.Evict(ctx, p)
}
