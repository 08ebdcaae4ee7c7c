// SPDX-License-Identifier: Apache-2.0

// Package birth keeps the parameter of the birth policy in sync with the gates, and proves
// by dry runs that the API server closes new Nodes and that the guards are in force.
package birth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Reconciler keeps the birth policy's parameter up to date, and probes whether the API
// server closes gates at birth.
type Reconciler struct {
	client    client.Client
	namespace string
	log       logr.Logger
	wake      chan struct{}
	// By specifies what closes gates at birth: the policy or the webhook.
	By admission.Birth

	// current contains the entries of the parameter as it was last read or written, by gate.
	// It is nil until that is known.
	current map[string]admission.Entry
	// rejected and rejectedTolerations are left out of the parameters.
	rejected            rejections[admission.Entry]
	rejectedTolerations rejections[admission.TolerationEntry]
	// failing reports whether the last attempt to read or write the parameter failed.
	failing bool
	// pause is the time before which nothing is probed.
	pause time.Time
	// allProved is closed by noteAllProved as soon as all gates are proved at the same time.
	allProved     chan struct{}
	noteAllProved func()

	mu    sync.Mutex
	gates map[string]birthState
	// untolerated contains, by gate, why the parameter of the tolerations policy does
	// not contain its entries.
	untolerated map[string]error
	// unremoved contains, by gate, why its entry could not be removed from the parameter.
	unremoved map[string]error
}

// birthState is the state of one gate.
type birthState struct {
	identity birthIdentity
	// err is why the gate is not known to be closed at birth, or nil if it is.
	err error
	// proved is the time of the last successful probe.
	proved time.Time
	// previous is the entry of an earlier version, if this version has not been proved. The
	// API server may still use it.
	previous admission.Entry
	// tries counts consecutive unsuccessful probes.
	tries int
	// due is the time of the next probe.
	due time.Time
}

// birthIdentity identifies the version of a gate that was probed.
type birthIdentity struct {
	uid        types.UID
	generation int64
}

// New returns a Reconciler for the parameter in nodegate's namespace.
func New(c client.Client, namespace string, log logr.Logger) *Reconciler {
	b := &Reconciler{
		client: c, namespace: namespace, log: log, wake: make(chan struct{}, 1),
		allProved: make(chan struct{}), gates: map[string]birthState{},
	}
	b.noteAllProved = sync.OnceFunc(func() { close(b.allProved) })
	return b
}

// Changed triggers a reconciliation.
func (b *Reconciler) Changed() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Run reconciles the current gates until the context ends.
func (b *Reconciler) Run(ctx context.Context, clk clock.WithTicker, current *atomic.Pointer[gateset.Set]) {
	timer := clk.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-timer.C():
		}
		timer.Reset(b.reconcile(ctx, current.Load(), clk))
	}
}

// reconcile updates the parameters and sends the probes that are due. It returns the time
// after which to reconcile again.
//
// The parameter of the tolerations policy is written first. An API server receives both in
// the order in which they were written, so when a gate is proved to be closed at birth,
// its tolerations are added there, too.
func (b *Reconciler) reconcile(ctx context.Context, set *gateset.Set, clk clock.PassiveClock) time.Duration {
	b.syncTolerations(ctx, set, clk)
	before, failed := b.syncParameter(ctx, set, clk)
	synced := clk.Now()
	due := b.probes(set, b.due(set, synced, before, failed))
	if !synced.Before(b.pause) {
		b.send(ctx, due, failed, clk)
	}
	return b.wait(clk.Now(), synced)
}

// send sends the first of the probes. A pause follows, in which nothing is probed.
func (b *Reconciler) send(ctx context.Context, due []probe, failed map[string]error, clk clock.PassiveClock) {
	began, sent := clk.Now(), 0
	for _, p := range due[:min(len(due), birthAtOnce)] {
		if clk.Since(began) >= birthTimeout {
			break // otherwise, parameters would not be written for a long time
		}
		proved := p.send(ctx, b.client, b.By)
		if ctx.Err() != nil {
			return
		}
		for _, one := range p {
			err, failure := proved(one.gate), failed[one.gate.Name]
			if failure != nil && (err != nil || b.lacks(one.gate)) {
				err = failure // it is the cause, or the probe was closed by another version
			}
			b.note(one.gate, err, clk.Now())
		}
		sent++
	}
	if b.areAllProved() {
		b.noteAllProved()
	}
	pause := min(clk.Since(began)*birthSlower, BirthLater)
	if sent < len(due) {
		pause = max(pause, birthPause)
	}
	b.pause = clk.Now().Add(pause)
}

// lacks reports whether the parameter is known not to contain the current version of a gate.
// This does not matter if the webhook closes gates, which does not read it.
func (b *Reconciler) lacks(ng *v1alpha1.NodeGate) bool {
	e, err := admission.NewEntry(ng)
	return b.By != admission.ByWebhook && b.current != nil && (err != nil || !b.current[ng.Name].Equal(e))
}

// due drops the states of gates that do not close at birth, and returns the gates to
// probe, most urgent first. They include gates whose parameter could not be read or written,
// unless they have been proved within BirthLater, so that the others are probed, too.
func (b *Reconciler) due(set *gateset.Set, now time.Time, entries map[string]admission.Entry, failed map[string]error) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.gates
	b.gates = make(map[string]birthState, len(set.Declared))
	var due []string
	for _, name := range set.Names() {
		if !set.ClosesAtBirth(name) {
			continue
		}
		state, known := before[name]
		if identity := identify(set.Declared[name]); !known || state.identity != identity {
			previous := state.previous
			if previous.Name == "" {
				previous = entries[name]
			}
			state = birthState{identity: identity, err: ErrNotChecked, previous: previous}
		}
		if soon := state.proved.Add(BirthLater); failed[name] != nil && state.err == nil && soon.Before(state.due) {
			state.due = soon
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

// note records the result of a probe.
func (b *Reconciler) note(ng *v1alpha1.NodeGate, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.gates[ng.Name]
	was := state.err
	state.err = err
	if err == nil {
		state.tries, state.proved, state.previous = 0, now, admission.Entry{}
		state.due = now.Add(wait.Jitter(BirthProved*4/5, 0.25)) // not all at the same time
	} else {
		state.due = now.Add(BirthLater)
		if state.tries++; state.tries < birthHasty {
			state.due = now.Add(min(birthFirst<<state.tries, birthSoon))
		}
	}
	// The first unsuccessful probes of a new gate are expected, and are not logged.
	if (was == nil) != (err == nil) || state.tries == birthHasty {
		b.log.Info("closing at creation checked", "gate", ng.Name, "proved", err == nil)
	}
	b.gates[ng.Name] = state
}

// AllProved returns a channel that is closed as soon as the API server has been proved to
// close all gates on new nodes.
func (b *Reconciler) AllProved() <-chan struct{} { return b.allProved }

func (b *Reconciler) areAllProved() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, state := range b.gates {
		if state.err != nil {
			return false
		}
	}
	return true
}

// wait returns the time until the next probe may be sent, or until the parameters, which
// were last written at synced, must be checked again. They do not wait for the end of a pause.
func (b *Reconciler) wait(now, synced time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := synced.Add(BirthLater) // parameters may be damaged at any time
	if len(b.unremoved) > 0 {
		next = synced.Add(birthRemove)
	}
	for _, state := range b.gates {
		if due := later(state.due, b.pause); due.Before(next) {
			next = due
		}
	}
	return max(next.Sub(now), 10*time.Millisecond)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Proved returns nil if the API server is known to close the gate on new nodes, and
// otherwise why not.
func (b *Reconciler) Proved(ng *v1alpha1.NodeGate) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, known := b.gates[ng.Name]; known && state.identity == identify(ng) {
		return state.err
	}
	return ErrNotChecked
}

// NotRemoved returns why the API server may still close the gate on new nodes although it must
// not, or nil.
func (b *Reconciler) NotRemoved(gate string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unremoved[gate]
}

// noteUnremoved records the gates whose entries are not needed but remain, because of err.
// This does not matter if the webhook closes gates.
func (b *Reconciler) noteUnremoved(set *gateset.Set, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unremoved = make(map[string]error)
	for name := range b.current {
		if err != nil && b.By != admission.ByWebhook && set.Unneeded(name) {
			b.unremoved[name] = err
		}
	}
}

// LastProved returns the time of the last successful probe of this version of the gate,
// or zero.
func (b *Reconciler) LastProved(ng *v1alpha1.NodeGate) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state := b.gates[ng.Name]; state.identity == identify(ng) {
		return state.proved
	}
	return time.Time{}
}

// syncParameter updates the parameter with the gates that close at birth. It returns the
// entries that it contained before, and errors, both by gate.
func (b *Reconciler) syncParameter(running context.Context, set *gateset.Set, clk clock.PassiveClock) (before map[string]admission.Entry, failed map[string]error) {
	ctx, cancel := context.WithTimeout(running, birthTimeout)
	defer cancel()
	failed = make(map[string]error)
	p := parameter[admission.Entry]{client: b.client, clock: clk, rejected: &b.rejected}
	p.render = func(entries []admission.Entry) *corev1.PodTemplate {
		return admission.Parameter(b.namespace, set.Source, entries)
	}
	var err, late error
	defer func() { b.noteUnremoved(set, cmp.Or(err, late)) }()
	err = b.client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: v1alpha1.BirthParameter}, &p.have)
	if client.IgnoreNotFound(err) != nil {
		err = fmt.Errorf("reading the birth parameter: %w", err)
		for _, name := range set.Names() {
			failed[name] = err
		}
		b.logParameter(running, err, "cannot read the birth parameter, retrying")
		return b.current, failed
	}
	before = admission.Entries(&p.have)
	b.current = before
	wanted, late := b.wanted(ctx, set, before, failed)
	if len(wanted) == 0 && apierrors.IsNotFound(err) && !set.Complete {
		return before, failed
	}
	// Otherwise, it is written even without entries: the policy also removes forged records
	// from new Nodes.
	var denied error
	err = p.store(running, wanted, func(e admission.Entry, err error) { failed[e.Name], denied = err, err })
	if err != nil {
		for _, e := range wanted {
			failed[e.Name] = err
		}
	}
	b.current = admission.Entries(&p.have)
	b.logParameter(running, cmp.Or(err, denied), "cannot write the birth parameter, retrying")
	return before, failed
}

// logParameter logs the first of consecutive failures to read or write the parameter.
func (b *Reconciler) logParameter(running context.Context, err error, message string) {
	if err != nil && !b.failing && running.Err() == nil {
		b.log.Error(err, message)
	}
	b.failing = err != nil
}

// entries returns the desired entries of the parameter: those of the gates that close at
// birth, and existing ones of gates that cannot be read at present, or in keep. Older gates
// come first; newer gates that do not fit are omitted.
func (b *Reconciler) entries(set *gateset.Set, before map[string]admission.Entry, keep, failed map[string]error) []admission.Entry {
	var all []admission.Entry
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if keep[name] != nil || !set.ClosesAtBirth(name) && !set.Unneeded(name) {
			all = append(all, before[name])
		}
	}
	for _, name := range byAge(set) {
		if keep[name] != nil || !set.ClosesAtBirth(name) {
			continue
		}
		e, err := admission.NewEntry(set.Declared[name])
		if err != nil {
			failed[name] = err
			continue
		}
		all = append(all, e)
	}
	fitting, tooMany := admission.Fit(all)
	maps.Copy(failed, tooMany)
	return fitting
}

// ErrNotChecked is the result of a gate that has not been probed yet.
var ErrNotChecked = errors.New("whether new nodes are closed has not been checked yet")
