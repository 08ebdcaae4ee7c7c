// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
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
)

// How often it is looked whether a gate is closed at birth: at once when it
// changes, soon again until that is proved (policies take up to a second to
// take effect), and every minute ever after, for it can be switched off at any
// time. A probe costs the API server two milliseconds, and a tenth more for every
// gate that selects it.
const (
	birthFirst   = 100 * time.Millisecond
	birthSoon    = time.Second
	birthLater   = 15 * time.Second
	birthProved  = time.Minute
	birthHasty   = 12 // how many times soon before later
	birthTimeout = 5 * time.Second
	// Where many are due, so many probes are made at a time, then comes a pause. It
	// is longer after slow ones: an API server that is busy has better things to do.
	birthAtOnce = 10
	birthPause  = 500 * time.Millisecond
	birthSlower = 9 // pause for so many times as long as the probes took
)

// birth keeps the birth policy's parameter in line with the gates, and finds out
// whether the API server really closes gates at birth.
type birth struct {
	client    client.Client
	namespace string
	log       logr.Logger
	wake      chan struct{}
	// by is who is meant to close gates at birth.
	by admission.Birth

	// failing is whether the parameter could not be written at the last attempt.
	failing bool
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

// look brings the parameter in line, and probes gates for which that is due.
// It returns after how long to look again.
func (b *birth) look(ctx context.Context, set *gateSet, clk clock.PassiveClock) time.Duration {
	failed := b.syncParameter(ctx, set)
	due := probes(set, b.due(set, clk.Now(), failed))
	if rest := b.pause.Sub(clk.Now()); rest > 0 && len(due) > 0 {
		return rest
	}
	began := clk.Now()
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
	pause, more := clk.Since(began)*birthSlower, len(due) > birthAtOnce
	if more {
		pause = max(pause, birthPause)
	}
	b.pause = clk.Now().Add(pause)
	if more {
		return pause
	}
	return max(pause, b.wait(clk.Now()))
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

// syncParameter makes the parameter what the gates ask for that close at birth,
// and returns, by gate, what could not be done.
func (b *birth) syncParameter(ctx context.Context, set *gateSet) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, birthTimeout)
	defer cancel()
	failed := make(map[string]error)
	var have corev1.PodTemplate
	err := b.client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: v1alpha1.BirthParameter}, &have)
	if client.IgnoreNotFound(err) != nil {
		for _, name := range set.names() {
			failed[name] = fmt.Errorf("reading the birth parameter: %w", err)
		}
		return failed
	}
	before := admission.Entries(&have)
	wanted := b.entries(set, before, failed)
	if len(wanted) == 0 && apierrors.IsNotFound(err) {
		return failed
	}
	err = b.write(ctx, &have, set.source, wanted)
	if denied := err; apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		err = b.writeEach(ctx, &have, set.source, before, wanted, failed)
		err = cmp.Or(err, denied)
	} else if err != nil {
		for _, e := range wanted {
			failed[e.Name] = err
		}
	}
	if err != nil && !b.failing && ctx.Err() == nil {
		b.log.Error(err, "cannot write the birth parameter, retrying")
	}
	b.failing = err != nil
	return failed
}

// entries returns what the parameter should hold: the gates that close at birth,
// and the existing entries of gates that cannot be read at present. Older gates come
// first, and younger ones that do not fit are left out.
func (b *birth) entries(set *gateSet, before map[string]admission.Entry, failed map[string]error) []admission.Entry {
	var all []admission.Entry
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !set.closesAtBirth(name) && !set.unneeded(name) {
			all = append(all, before[name])
		}
	}
	byAge := slices.SortedFunc(slices.Values(set.names()), func(a, z string) int {
		return cmp.Or(set.declared[a].CreationTimestamp.Compare(set.declared[z].CreationTimestamp.Time), cmp.Compare(a, z))
	})
	for _, name := range byAge {
		if !set.closesAtBirth(name) {
			continue
		}
		e, err := admission.NewEntry(set.declared[name])
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

// write makes the parameter hold the entries; have is what it was read as, and
// becomes what it was written as.
func (b *birth) write(ctx context.Context, have *corev1.PodTemplate, source string, entries []admission.Entry) error {
	want := admission.Parameter(b.namespace, source, entries)
	if have.ResourceVersion == "" {
		if err := b.client.Create(ctx, want); err != nil {
			return fmt.Errorf("creating PodTemplate %s/%s: %w", want.Namespace, want.Name, err)
		}
		*have = *want
		return nil
	}
	corrected, changed := admission.Corrected(have, want)
	if !changed {
		return nil
	}
	if err := b.client.Update(ctx, corrected); err != nil {
		return fmt.Errorf("updating PodTemplate %s/%s: %w", want.Namespace, want.Name, err)
	}
	*have = *corrected
	return nil
}

// writeEach writes the entries one by one, so that one which the API server does
// not accept keeps no other out. It returns what had nothing to do with an entry.
func (b *birth) writeEach(ctx context.Context, have *corev1.PodTemplate, source string, before map[string]admission.Entry, wanted []admission.Entry, failed map[string]error) error {
	var accepted, changed []admission.Entry
	for _, e := range wanted {
		if was, there := before[e.Name]; there && was.Equal(e) {
			accepted = append(accepted, e)
		} else {
			changed = append(changed, e)
		}
	}
	if err := b.write(ctx, have, source, accepted); err != nil { // what has gone, at least
		for _, e := range wanted {
			failed[e.Name] = err
		}
		return err
	}
	for _, e := range changed {
		if err := b.write(ctx, have, source, append(slices.Clone(accepted), e)); err != nil {
			failed[e.Name] = err
			continue
		}
		accepted = append(accepted, e)
	}
	return nil
}
