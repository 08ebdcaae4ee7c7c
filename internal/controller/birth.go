// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// How often it is looked whether a gate is closed at birth: at once when it
// changes, soon again until that is proved (policies take up to a second to
// take effect), and every minute ever after, for it can be switched off at any
// time. A probe costs the API server two milliseconds, and one more for every
// gate that there is.
const (
	birthFirst   = 100 * time.Millisecond
	birthSoon    = time.Second
	birthLater   = 15 * time.Second
	birthProved  = time.Minute
	birthHasty   = 12 // how many times soon before later
	birthTimeout = 5 * time.Second
	// Where many are due, so many probes are made at a time, then comes a pause.
	birthAtOnce = 10
	birthPause  = 500 * time.Millisecond
)

// birth keeps the birth policy's parameters in line with the gates, and finds
// out whether the API server really closes gates at birth.
type birth struct {
	client    client.Client
	namespace string
	log       logr.Logger
	wake      chan struct{}
	// by is who is meant to close gates at birth.
	by admission.Birth

	// stuck names parameters that could not be deleted.
	stuck string
	// pause is until when nothing is probed, whatever has changed.
	pause time.Time

	mu    sync.Mutex
	gates map[string]birthState
}

// birthState is what is known of one gate.
type birthState struct {
	identity birthIdentity
	// err is why the gate is not known to be closed at birth. Nil if it is.
	err error
	// proved is when it was last seen to be.
	proved time.Time
	// tries counts probes in a row that did not prove it.
	tries int
	// due is when to look again.
	due time.Time
}

// birthIdentity is what a proof is about.
type birthIdentity struct {
	uid        types.UID
	generation int64
}

func newBirth(c client.Client, namespace string, log logr.Logger) *birth {
	return &birth{client: c, namespace: namespace, log: log, wake: make(chan struct{}, 1), gates: map[string]birthState{}}
}

// changed has everything looked at soon.
func (b *birth) changed() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run works until the context ends.
func (b *birth) run(ctx context.Context, clk clock.WithTicker, current *atomic.Pointer[gateSet]) {
	timer := clk.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-timer.C():
		}
		timer.Reset(b.look(ctx, current.Load(), clk))
	}
}

// look brings the parameters in line, and probes gates for which that is due.
// It returns after how long to look again.
func (b *birth) look(ctx context.Context, set *gateSet, clk clock.PassiveClock) time.Duration {
	failed := b.syncParameters(ctx, set)
	due := probes(set, b.due(set, clk.Now(), failed))
	if rest := b.pause.Sub(clk.Now()); rest > 0 && len(due) > 0 {
		return rest
	}
	for _, p := range due[:min(len(due), birthAtOnce)] {
		proved := p.look(ctx, b.client, b.by)
		if ctx.Err() != nil {
			break
		}
		for _, ng := range p {
			err := proved(ng)
			if err != nil {
				err = cmp.Or(failed[ng.Name], err) // the cause, rather than its consequence
			}
			b.note(ng, err, clk.Now())
		}
	}
	if len(due) > birthAtOnce {
		b.pause = clk.Now().Add(birthPause)
		return birthPause
	}
	return b.wait(clk.Now())
}

// due forgets gates that do not close at birth, or no longer, and returns those that are
// to be probed, the most urgent first. A gate whose parameter could not be
// written is one of them, unless it has just been probed.
func (b *birth) due(set *gateSet, now time.Time, failed map[string]error) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.gates
	b.gates = make(map[string]birthState, len(set.declared))
	var due []string
	for _, name := range set.names() {
		if !set.closesAtBirth(name) {
			continue
		}
		state, known := before[name]
		if identity := identify(set.declared[name]); !known || state.identity != identity {
			state = birthState{identity: identity, err: errNotChecked}
		}
		if failed[name] != nil && state.err == nil {
			state.due = time.Time{}
		}
		if !state.due.After(now) {
			due = append(due, name)
		}
		b.gates[name] = state
	}
	slices.SortStableFunc(due, func(a, z string) int { return b.gates[a].due.Compare(b.gates[z].due) })
	return due
}

func identify(ng *v1alpha1.NodeGate) birthIdentity {
	return birthIdentity{uid: ng.UID, generation: ng.Generation}
}

// note takes note of what a probe has shown.
func (b *birth) note(ng *v1alpha1.NodeGate, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.gates[ng.Name]
	was := state.err
	state.err = err
	if err == nil {
		state.tries, state.proved = 0, now
		state.due = now.Add(wait.Jitter(birthProved*4/5, 0.25)) // not all at the same time
	} else {
		state.due = now.Add(birthLater)
		if state.tries++; state.tries < birthHasty {
			state.due = now.Add(min(birthFirst<<state.tries, birthSoon))
		}
	}
	// That it takes a moment until it is proved is not worth a word.
	if (was == nil) != (err == nil) || state.tries == birthHasty {
		b.log.Info("closing at birth checked", "gate", ng.Name, "proved", err == nil)
	}
	b.gates[ng.Name] = state
}

// wait returns how long it is until something is due.
func (b *birth) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := now.Add(birthLater) // parameters may be damaged at any time
	for _, state := range b.gates {
		if state.due.Before(next) {
			next = state.due
		}
	}
	return max(next.Sub(now), 10*time.Millisecond)
}

// proved returns nil if new nodes are known to be closed by the API server,
// and otherwise why not.
func (b *birth) proved(ng *v1alpha1.NodeGate) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, known := b.gates[ng.Name]; known && state.identity == identify(ng) {
		return state.err
	}
	return errNotChecked
}

// lastProved is when that was last seen, of the gate as it is now. Zero is never.
func (b *birth) lastProved(ng *v1alpha1.NodeGate) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state := b.gates[ng.Name]; state.identity == identify(ng) {
		return state.proved
	}
	return time.Time{}
}

// syncParameters makes the parameters what the gates ask for that close at birth, and
// returns, by gate, what could not be done.
func (b *birth) syncParameters(ctx context.Context, set *gateSet) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, birthTimeout)
	defer cancel()
	failed := make(map[string]error)
	var want []*corev1.PodTemplate
	for _, name := range set.names() {
		if !set.closesAtBirth(name) {
			continue
		}
		p, err := admission.Parameter(b.namespace, set.source, set.declared[name])
		if err != nil {
			failed[name] = err
			continue
		}
		want = append(want, p)
	}
	var have corev1.PodTemplateList
	err := b.client.List(ctx, &have, client.InNamespace(b.namespace), client.HasLabels{v1alpha1.ParameterLabel})
	if err != nil {
		for _, name := range set.names() {
			failed[name] = cmp.Or(failed[name], fmt.Errorf("listing birth parameters: %w", err))
		}
		return failed
	}
	b.carryOut(ctx, set, admission.Plan(want, have.Items), failed)
	return failed
}

func (b *birth) carryOut(ctx context.Context, set *gateSet, changes admission.Changes, failed map[string]error) {
	do := func(doing string, p *corev1.PodTemplate, write func() error) {
		if err := write(); err != nil {
			failed[p.Name] = fmt.Errorf("%s birth parameter %s/%s: %w", doing, p.Namespace, p.Name, err)
		}
	}
	for _, p := range changes.Create {
		do("creating", p, func() error { return b.client.Create(ctx, p) })
	}
	for _, p := range changes.Update {
		do("updating", p, func() error { return b.client.Update(ctx, p) })
	}
	var stuck few
	var failure error
	for _, p := range changes.Delete {
		if !set.unneeded(p.Name) {
			continue
		}
		if err := client.IgnoreNotFound(b.client.Delete(ctx, p)); err != nil {
			stuck.addIf(true, p.Name)
			failure = err
		}
	}
	if b.stuck != stuck.String() && failure != nil && ctx.Err() == nil {
		b.log.Error(failure, "cannot delete birth parameters, retrying", "gates", stuck.String())
	}
	b.stuck = stuck.String()
}
