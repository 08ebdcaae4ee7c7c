// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/birth"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/telemetry"
)

const (
	// statusInterval is the minimum time between two writes of a gate's status, because
	// counts change with every node.
	statusInterval = time.Second
	// statusRetryMax is the maximum of the backoff of failed writes, which starts at one
	// interval.
	statusRetryMax = time.Minute
	statusTimeout  = 5 * time.Second
)

// reporter keeps the status of gates up to date.
type reporter struct {
	set         *atomic.Pointer[gateset.Set]
	gateFeed    GateFeed
	needsFeed   NeedsFeed
	ledger      *fleet.Ledger
	groups      *fleet.Groups
	birth       *birth.Reconciler
	guards      *birth.GuardProber
	permissions *permissions
	client      client.Client
	events      *telemetry.Recorder
	metrics     *telemetry.Metrics
	plainOptOut bool
	clock       clock.WithTicker
	log         logr.Logger

	gates map[types.UID]*reported
	// last is the input of the last report.
	last *observed
	// unlisted has the unlisted gates that were last logged.
	unlisted string
}

// reported is what was last reported about one gate.
type reported struct {
	// status is the status as last written, at writtenAt, or else as read.
	status    v1alpha1.NodeGateStatus
	writtenAt time.Time
	// inherited reports whether the status was read, and the whole fleet has not been evaluated
	// since. A part of the fleet would withdraw conditions falsely. It is never true again, so
	// that a gate that is edited often is still counted.
	inherited bool
	// stored is the status as the feed has it, or nil if it is not known. It is shared and
	// must not be modified.
	stored     *v1alpha1.NodeGateStatus
	contention contention
	// mode is the last reported mode; empty means Enforce.
	mode v1alpha1.Mode
	// failures counts consecutive failed writes. The next attempt is at retryAt.
	failures int
	retryAt  time.Time
}

func (c *Controller) newReporter() *reporter {
	return &reporter{
		set: &c.set, gateFeed: c.gateFeed, needsFeed: c.needsFeed, ledger: c.ledger, groups: c.groups,
		birth: c.birth, guards: c.guards, permissions: c.permissions,
		client: c.client, events: c.events, metrics: c.metrics,
		plainOptOut: c.options.PlainOptOut, clock: c.clock, log: c.log,
		gates: make(map[types.UID]*reported),
	}
}

// run reports until the context ends. The first report waits until all these channels are
// closed, so that it is complete, but not for more than one interval: problems that are known
// must be reported even if the fleet cannot be evaluated.
func (r *reporter) run(ctx context.Context, known ...<-chan struct{}) {
	r.await(ctx, known)
	ticker := r.clock.NewTicker(statusInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.report(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
}

func (r *reporter) await(ctx context.Context, known []<-chan struct{}) {
	timer := r.clock.NewTimer(statusInterval)
	defer timer.Stop()
	for _, k := range known {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		case <-k:
		}
	}
}

// report updates the metrics of every gate, and writes its status if that has changed. If the API
// server takes too long to answer, it sends no further requests, because the metrics of the other
// gates must not wait for it. The next report continues with the gates that have not failed.
func (r *reporter) report(ctx context.Context) {
	set := r.set.Load()
	r.last = r.observe(set, r.last)
	r.syncGates(set)
	r.logUnlisted(set)
	began := r.clock.Now()
	for _, name := range r.byRetry(set) {
		if ctx.Err() != nil {
			return
		}
		ng := set.Declared[name]
		last := r.gates[ng.UID]
		late := r.clock.Since(began) >= statusTimeout
		status := r.measure(ctx, r.last, ng, last, late)
		if late || r.clock.Now().Before(last.retryAt) {
			continue
		}
		r.recordWrite(ctx, name, last, r.write(ctx, ng, last, status))
	}
}

// byRetry returns the names of the gates, those first whose last write has not failed, and then those
// that have waited for the longest time.
func (r *reporter) byRetry(set *gateset.Set) []string {
	retryAt := func(name string) time.Time { return r.gates[set.Declared[name].UID].retryAt }
	return slices.SortedStableFunc(slices.Values(set.Names()), func(a, b string) int { return retryAt(a).Compare(retryAt(b)) })
}

// syncGates drops deleted gates, and initializes new ones with their current status. The
// feed's copies are preferred: the set's copies are older, because a set is created only
// when a spec changes. It also updates what is stored.
func (r *reporter) syncGates(set *gateset.Set) {
	declared, _ := r.gateFeed.Gates()
	before := r.gates
	r.gates = make(map[types.UID]*reported, len(set.Declared))
	for _, list := range [][]*v1alpha1.NodeGate{declared, set.List()} {
		for _, ng := range list {
			if r.gates[ng.UID] != nil {
				continue
			}
			if r.gates[ng.UID] = before[ng.UID]; r.gates[ng.UID] == nil {
				r.gates[ng.UID] = &reported{status: *ng.Status.DeepCopy(), inherited: len(ng.Status.Conditions) > 0}
			}
		}
	}
	for _, ng := range declared {
		if r.gates[ng.UID].stored = &ng.Status; ng.ReadError != "" { // the status was not read either
			r.gates[ng.UID].stored = nil
		}
	}
}

// mustWrite reports whether a gate's current status must be written: it has changed since
// it was last written, or another writer has replaced that. The latter is assumed only
// refreshInterval after a write. By then, the feed has delivered the write, or has listed
// all gates again. If the other writer continues, that is also the interval of writes.
func (r *reporter) mustWrite(last *reported, status *v1alpha1.NodeGateStatus) bool {
	same := apiequality.Semantic.DeepEqual
	return !same(&last.status, status) ||
		r.clock.Since(last.writtenAt) >= refreshInterval && last.stored != nil && !same(last.stored, status)
}

// recordWrite records the outcome of a write. It logs the first of consecutive failures, unless
// the gate was deleted. The feed reports that later or, if the CustomResourceDefinition was
// deleted, too, only when that exists again.
func (r *reporter) recordWrite(ctx context.Context, name string, last *reported, err error) {
	if err == nil || ctx.Err() != nil {
		last.failures, last.retryAt = 0, time.Time{}
		return
	}
	if last.failures == 0 && !apierrors.IsNotFound(err) {
		r.log.Error(err, "cannot write status, retrying", "gate", name)
	}
	last.retryAt = r.clock.Now().Add(min(statusInterval<<min(last.failures, 10), statusRetryMax))
	last.failures++
}

// measure returns a gate's current status, and sets the gate's metrics. If it is late, it sends no
// requests, and the status does not describe a writer that has begun to contend.
func (r *reporter) measure(ctx context.Context, o *observed, ng *v1alpha1.NodeGate, last *reported, late bool) v1alpha1.NodeGateStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	last.inherited = last.inherited && !r.ledger.IsEvaluated(ng.Name)
	summary := r.ledger.Summary(ng.Name)
	switch {
	case o.set.ClosesAtBirth(ng.Name):
		if err := r.birth.Proved(ng); !awaitsProof(err, ng, last) {
			r.metrics.BirthProved(ng.Name, err == nil, r.birth.LastProved(ng))
		}
	case o.set.Compiling(ng.Name): // it is not known yet whether the gate is accepted: the previous values remain
	default:
		r.metrics.NotClosedAtBirth(ng.Name)
	}
	r.reportMode(ng, last)
	if !late {
		r.identifyWriter(ctx, ng, last, &summary.Contended)
	}
	status := r.status(o, ng, last, summary)
	r.metrics.GateNodes(ng.Name, status.Nodes)
	r.metrics.GateNonMembers(ng.Name, status.NonMembers)
	if !last.inherited {
		r.metrics.GateWaiting(ng.Name, summary)
	}
	r.metrics.GateGroups(ng.Name, status.Groups)
	r.metrics.GateBudget(ng.Name, r.ledger.Usage(ng.Name))
	r.metrics.GateConditions(ng.Name, status.Conditions)
	return status
}

// write writes a gate's status if that is necessary.
func (r *reporter) write(ctx context.Context, ng *v1alpha1.NodeGate, last *reported, status v1alpha1.NodeGateStatus) error {
	if r.last.set.Source != v1alpha1.SourceCRD {
		r.logConditions(ng.Name, last.status.Conditions, status.Conditions)
		last.status = status
		return nil
	}
	if !r.mustWrite(last, &status) {
		return nil
	}
	body, err := statusPatch(ng.UID, &status)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	// The response is not decoded as a NodeGate, because the gate may not be readable.
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: ng.Name}}
	target.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGate"))
	if err := r.client.Status().Patch(ctx, target, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return fmt.Errorf("patching status: %w", err)
	}
	r.recordConditionEvents(ng, last.status.Conditions, status.Conditions)
	last.status, last.writtenAt = status, r.clock.Now()
	return nil
}

// statusPatch returns a JSON patch that replaces the status of the gate with this UID,
// and not of a later one with the same name.
func statusPatch(uid types.UID, status *v1alpha1.NodeGateStatus) ([]byte, error) {
	body, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": uid},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return nil, fmt.Errorf("marshalling status: %w", err)
	}
	return body, nil
}
