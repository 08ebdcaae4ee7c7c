// SPDX-License-Identifier: Apache-2.0

// Package bypass reports or evicts pods that started on a node while a gate was closed
// there, and lists all pods of nodes that may have to be idle.
package bypass

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/telemetry"
)

const (
	// settles is the time between an opening and the search for its bypassed pods. By
	// then, kubelets have reported the pods that they started before the opening.
	settles = 5 * time.Second
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
	// namedMax is the maximum number of pods that a message names.
	namedMax = 10
)

// Handler searches, after a gate has opened on a node, for pods that started there while
// it was closed, and reports or evicts them. It does not use the controller's workers.
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
	// Gates returns the current gates, and Facts the facts about a node.
	Gates func() *gateset.Set
	Facts func(node string) (gate.Facts, bool)

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
	// tries counts the attempts.
	tries int
	// reported reports whether its pods have been reported.
	reported bool
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
	key := key{node: n.Name, gate: v.Gate}
	b.mu.Lock()
	b.pending[key] = &opening{uid: n.UID, boot: n.BootID, closure: *v.Closure}
	b.mu.Unlock()
	b.queue.AddAfter(key, settles)
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
	if b.attempt(ctx, key, o) {
		after := min(retryMin<<min(o.tries, 10), retryMax)
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

// attempt lists, reports and evicts the bypassed pods, and reports whether another attempt is
// needed.
func (b *Handler) attempt(ctx context.Context, key key, o *opening) bool {
	policy, n, current := b.current(key, o)
	if !current {
		return false
	}
	if !b.MayList() {
		return o.tries < Tries
	}
	list, err := b.Pods.list(ctx, key.node)
	if err != nil {
		if o.tries == 0 && ctx.Err() == nil {
			b.Log.Error(err, "cannot list bypassed pods, retrying", "gate", key.gate, "node", key.node)
		}
		return o.tries < Tries
	}
	var certain, possible, evictable []*gate.BoundPod
	for i := range list.Pods {
		switch p := &list.Pods[i]; o.closure.Bypassed(p) {
		case gate.CertainlyBypassed:
			certain = append(certain, p)
			if p.Evictable() {
				evictable = append(evictable, p)
			}
		case gate.PossiblyBypassed:
			possible = append(possible, p)
		}
	}
	b.report(key, n, o, policy, certain, possible)
	if policy != v1alpha1.BypassedEvict || !b.MayEvict() {
		return false
	}
	return b.evict(ctx, key, n, o, evictable)
}

// current returns the gate's policy for bypassed pods and the node, and reports whether the
// opening is still current: it is the same boot of the same Node, and the gate has been open
// since.
func (b *Handler) current(key key, o *opening) (v1alpha1.BypassedPods, *gate.Node, bool) {
	ng, listed := b.Gates().Declared[key.gate]
	facts, exists := b.Facts(key.node)
	n := &facts.Node
	if !listed || !ng.Spec.Enforces() || !exists || n.UID != o.uid || n.BootID != o.boot {
		return "", nil, false
	}
	// If the gate has closed since, the record's time is later, even if it has opened again.
	record, err := gate.ParseRecord(n.Records[key.gate])
	if err != nil || record.Since.After(o.closure.Until) {
		return "", nil, false
	}
	policy := ng.Spec.BypassedPods
	return policy, n, policy.Searched()
}

// report reports the pods that certainly or possibly bypassed the gate, once per opening.
func (b *Handler) report(key key, n *gate.Node, o *opening, policy v1alpha1.BypassedPods, certain, possible []*gate.BoundPod) {
	if o.reported || len(certain)+len(possible) == 0 {
		return
	}
	o.reported = true
	b.Metrics.Bypassed(key.gate, len(certain), len(possible))
	b.Log.Info("pods had started while the gate was closed", "gate", key.gate, "node", key.node,
		"pods", len(certain), "names", namesOf(certain), "possibly", len(possible), "possibleNames", namesOf(possible))
	b.Events.Warning(n, telemetry.GateReference(b.Gates().Object(key.gate)), v1alpha1.EventBypassedPods, string(policy), note(key.gate, certain, possible))
}

// note describes the pods that certainly or possibly bypassed a gate.
func note(gateName string, certain, possible []*gate.BoundPod) string {
	var parts []string
	if len(certain) > 0 {
		parts = append(parts, fmt.Sprintf("%s started while gate %s was closed, without tolerating its taint: %s", count(len(certain)), gateName, namesOf(certain)))
	}
	if len(possible) > 0 {
		parts = append(parts, fmt.Sprintf("%s possibly started while gate %s was closed, without tolerating its taint, because it closed or opened at about that time: %s",
			count(len(possible)), gateName, namesOf(possible)))
	}
	return strings.Join(parts, "; ")
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}

// namesOf returns the names of pods, or of some if there are many.
func namesOf(pods []*gate.BoundPod) string {
	names := fleet.NameList{Most: namedMax}
	for _, p := range pods {
		names.AddIf(true, p.Namespace+"/"+p.Name)
	}
	return names.String()
}

// evict evicts pods, and returns whether another attempt is needed.
func (b *Handler) evict(ctx context.Context, key key, n *gate.Node, o *opening, pods []*gate.BoundPod) bool {
	remain, err := b.evictAll(ctx, key, pods)
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
		"gave up evicting %s, which had started while gate %s was closed: %s", count(len(remain)), key.gate, namesOf(remain)))
	return false
}

// evictAll evicts pods, and returns those that remain, with the first error that is not
// expected to be temporary.
func (b *Handler) evictAll(ctx context.Context, key key, pods []*gate.BoundPod) ([]*gate.BoundPod, error) {
	var remain []*gate.BoundPod
	var failure error
	for _, p := range pods {
		if b.evicts.Wait(ctx) != nil {
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
