// SPDX-License-Identifier: Apache-2.0

package gates

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Reasons for which the list of gates may be incomplete.
var (
	errGatesNotRead = errors.New("NodeGates have not been listed yet")
	errNotConfirmed = errors.New("the list of NodeGates has not been confirmed to be complete yet")
	errSettling     = errors.New("the CustomResourceDefinition " + DefinitionName +
		" was created less than two minutes ago: more NodeGates may follow")
	errDefinitionDeleted = errors.New("the CustomResourceDefinition " + DefinitionName +
		" is being deleted or does not exist: closed gates stay closed until it is restored")
)

// gateList is a snapshot of the gates. It is immutable.
type gateList struct {
	gates []*v1alpha1.NodeGate
	// deleted has the names of gates that are known to have been deleted while the list
	// may be incomplete.
	deleted map[string]bool
	// err is why the list may be incomplete, or nil.
	err error
}

// store keeps the NodeGates, and determines whether the list is complete (see
// confirm.go).
type store struct {
	definition func(context.Context) (*metav1.PartialObjectMetadata, error)
	changed    func()
	log        logr.Logger
	clock      clock.PassiveClock
	feed       *reflector.Observer
	wake       reflector.Wake
	current    atomic.Pointer[gateList]

	mu sync.Mutex
	// byName has the visible gates, and those that disappeared and are not confirmed to
	// have been deleted.
	byName map[string]*v1alpha1.NodeGate
	// vanished has the names of the latter.
	vanished map[string]bool
	// requests counts the changes that require reading the definition again.
	requests int
	// deleted has the names of gates that were found to have been deleted since the list
	// was last complete.
	deleted map[string]bool
	// err is why the list may be incomplete, apart from the status of the feed. errLogged
	// reports whether it has been logged.
	err       error
	errLogged bool
	// definitionUID is the UID of the definition when it was last read. definitionSince
	// is the time since when it has existed.
	definitionUID   types.UID
	definitionSince time.Time
}

var _ reflector.Sink[*v1alpha1.NodeGate] = (*store)(nil)

func newStore(definition func(context.Context) (*metav1.PartialObjectMetadata, error), log logr.Logger, c clock.PassiveClock) *store {
	s := &store{
		definition: definition, log: log, clock: c, wake: reflector.NewWake(), err: errNotConfirmed,
		byName: make(map[string]*v1alpha1.NodeGate), vanished: make(map[string]bool), deleted: make(map[string]bool),
	}
	s.feed = reflector.NewObserver(GatesName, log, c, s.liveChanged)
	s.current.Store(&gateList{err: errGatesNotRead})
	return s
}

// Put implements reflector.Sink.
func (s *store) Put(g *v1alpha1.NodeGate) {
	s.update(func() { s.set(g) })
}

// Drop implements reflector.Sink.
func (s *store) Drop(g *v1alpha1.NodeGate) {
	s.update(func() { s.vanish(g.Name) })
}

// Replace implements reflector.Sink.
func (s *store) Replace(all []*v1alpha1.NodeGate) {
	s.update(func() {
		found := make(map[string]bool, len(all))
		for _, g := range all {
			found[g.Name] = true
			s.set(g)
		}
		for name := range s.byName {
			if !found[name] {
				s.vanish(name)
			}
		}
		s.unconfirm()
	})
}

func (s *store) set(g *v1alpha1.NodeGate) {
	delete(s.vanished, g.Name)
	delete(s.deleted, g.Name)
	switch before := s.byName[g.Name]; {
	case g.ReadError != "" && (before == nil || before.ReadError != g.ReadError):
		s.log.Error(errors.New(g.ReadError), "cannot read a gate, its closed nodes stay closed", "gate", g.Name)
	case g.ReadError == "" && before != nil && before.ReadError != "":
		s.log.Info("gate can be read again", "gate", g.Name)
	}
	s.byName[g.Name] = g
}

func (s *store) vanish(name string) {
	if _, known := s.byName[name]; known && !s.vanished[name] {
		s.vanished[name] = true
		s.requests++
	}
}

// unconfirm requires the list of gates to be confirmed again.
func (s *store) unconfirm() {
	s.err = errNotConfirmed
	s.requests++
}

// liveChanged is called when the feed has become live or has ceased to be.
func (s *store) liveChanged() {
	s.update(s.unconfirm)
}

// update applies a change, publishes the result, and requests a confirmation if the
// change requires one. Other changes, such as the controller's own status updates, do not
// shorten the backoff of a confirmation that is pending.
func (s *store) update(change func()) {
	s.mu.Lock()
	requests := s.requests
	change()
	confirm := s.requests != requests
	notify := s.publish()
	s.mu.Unlock()
	if confirm {
		s.wake.Send()
	}
	if notify {
		s.changed()
	}
}

// publish publishes a snapshot of the gates. It returns false if nothing has changed.
func (s *store) publish() bool {
	before := s.current.Load()
	now := &gateList{err: s.incomplete(), deleted: maps.Clone(s.deleted)}
	now.gates = slices.SortedFunc(maps.Values(s.byName), func(a, b *v1alpha1.NodeGate) int {
		return cmp.Compare(a.Name, b.Name)
	})
	s.current.Store(now)
	s.logCompleteness(now)
	return !slices.EqualFunc(before.gates, now.gates, sameGate) || !maps.Equal(before.deleted, now.deleted) ||
		(before.err == nil) != (now.err == nil)
}

// logCompleteness logs that the list has become incomplete or complete again. It ignores
// errors that the feed logs and conditions that end by themselves.
func (s *store) logCompleteness(now *gateList) {
	switch {
	case now.err == nil && s.errLogged:
		s.log.Info("all gates are known again", "gates", len(now.gates))
		s.errLogged = false
	case now.err == nil, s.errLogged, !s.feed.IsLive(), errors.Is(now.err, errNotConfirmed), errors.Is(now.err, errSettling):
	default:
		s.log.Error(now.err, "gates may be missing, their closed nodes stay closed")
		s.errLogged = true
	}
}

// sameGate reports whether two versions of a NodeGate have the same spec. Their statuses,
// which the controller writes, may differ.
func sameGate(a, b *v1alpha1.NodeGate) bool { return a.Name == b.Name && a.IsDeclaredAs(b) }

// whyIncomplete returns why the list may be incomplete now, or nil if it is complete or
// is expected to be soon.
func (s *store) whyIncomplete() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.incomplete()
	if errors.Is(err, errSettling) {
		return nil
	}
	return err
}

func (s *store) incomplete() error {
	switch feed := s.feed.Status(); {
	case feed.Err != nil:
		return fmt.Errorf("observing NodeGates: %w", feed.Err)
	case !feed.Live:
		return errGatesNotRead
	}
	return s.err
}
