// SPDX-License-Identifier: Apache-2.0

package cluster

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
)

// Why the gates may not be complete.
var (
	errGatesNotRead = errors.New("the NodeGates have not been read")
	errNotConfirmed = errors.New("it is not confirmed yet that the NodeGates are all there")
	errSettling     = errors.New("the CustomResourceDefinition " + definitionName +
		" came into being only just now: NodeGates may be on their way")
	errDefinitionDeleted = errors.New("the CustomResourceDefinition " + definitionName +
		" is being deleted, and all NodeGates with it: what gates have closed stays closed until it is back")
)

// gateList is what is known of the gates at one moment. It is immutable.
type gateList struct {
	gates []*v1alpha1.NodeGate
	// deleted names gates that are known to have been deleted although the gates
	// may not be complete.
	deleted map[string]bool
	// err is why these may not be all. Nil if they are.
	err error
}

// gateStore keeps the NodeGates, and knows whether they are all (see
// confirm.go).
type gateStore struct {
	definition func(context.Context) (*metav1.PartialObjectMetadata, error)
	changed    func()
	log        logr.Logger
	clock      clock.PassiveClock
	feed       *observer
	wake       signal
	current    atomic.Pointer[gateList]

	mu sync.Mutex
	// byName has the gates that are there, and those that vanished and are not
	// confirmed to have been deleted.
	byName map[string]*v1alpha1.NodeGate
	// vanished are the latter.
	vanished map[string]bool
	// doubts counts what has called for another look at the definition.
	doubts int
	// deleted names those that were found to have been deleted since the gates
	// were last complete.
	deleted map[string]bool
	// err is why the gates may not be complete, apart from the feed, and told
	// that it has been logged.
	err  error
	told bool
	// definitionUID is the definition's, as last seen, and definitionSince is
	// since when it has been there.
	definitionUID   types.UID
	definitionSince time.Time
}

var _ sink[*v1alpha1.NodeGate] = (*gateStore)(nil)

func newGateStore(o Options, definition func(context.Context) (*metav1.PartialObjectMetadata, error)) *gateStore {
	s := &gateStore{
		definition: definition, log: o.Log, clock: o.Clock, wake: newSignal(), err: errNotConfirmed,
		byName: make(map[string]*v1alpha1.NodeGate), vanished: make(map[string]bool), deleted: make(map[string]bool),
	}
	s.feed = newObserver(gatesName, o.Log, s.turned)
	s.current.Store(&gateList{err: errGatesNotRead})
	return s
}

// put implements sink.
func (s *gateStore) put(g *v1alpha1.NodeGate) {
	s.update(func() { s.set(g) })
}

// drop implements sink.
func (s *gateStore) drop(g *v1alpha1.NodeGate) {
	s.update(func() { s.vanish(g.Name) })
}

// replace implements sink.
func (s *gateStore) replace(all []*v1alpha1.NodeGate) {
	s.update(func() {
		there := make(map[string]bool, len(all))
		for _, g := range all {
			there[g.Name] = true
			s.set(g)
		}
		for name := range s.byName {
			if !there[name] {
				s.vanish(name)
			}
		}
		s.doubt()
	})
}

func (s *gateStore) set(g *v1alpha1.NodeGate) {
	delete(s.vanished, g.Name)
	delete(s.deleted, g.Name)
	switch before := s.byName[g.Name]; {
	case g.ReadError != "" && (before == nil || before.ReadError != g.ReadError):
		s.log.Error(errors.New(g.ReadError), "cannot read a gate, keeping what it closed", "gate", g.Name)
	case g.ReadError == "" && before != nil && before.ReadError != "":
		s.log.Info("gate can be read again", "gate", g.Name)
	}
	s.byName[g.Name] = g
}

func (s *gateStore) vanish(name string) {
	if _, known := s.byName[name]; known && !s.vanished[name] {
		s.vanished[name] = true
		s.doubts++
	}
}

// doubt: it has to be confirmed anew that the gates are all there.
func (s *gateStore) doubt() {
	s.err = errNotConfirmed
	s.doubts++
}

// turned takes in that the gates have become readable, or have ceased to be.
func (s *gateStore) turned() {
	s.update(s.doubt)
}

// update changes what is known, publishes it, and has it confirmed if the change
// has put it in doubt. While it is not confirmed for other reasons, a change that
// raises no doubt, as our own writes of status are, has nobody ask again before it
// is time.
func (s *gateStore) update(change func()) {
	s.mu.Lock()
	doubts := s.doubts
	change()
	doubted := s.doubts != doubts
	news := s.publish()
	s.mu.Unlock()
	if doubted {
		s.wake.send()
	}
	if news {
		s.changed()
	}
}

// publish makes what is known visible. It is false if nothing has changed.
func (s *gateStore) publish() bool {
	before := s.current.Load()
	now := &gateList{err: s.incomplete(), deleted: maps.Clone(s.deleted)}
	now.gates = slices.SortedFunc(maps.Values(s.byName), func(a, b *v1alpha1.NodeGate) int {
		return cmp.Compare(a.Name, b.Name)
	})
	s.current.Store(now)
	s.tell(now)
	return !slices.EqualFunc(before.gates, now.gates, sameGate) || !maps.Equal(before.deleted, now.deleted) ||
		(before.err == nil) != (now.err == nil)
}

// tell logs what becomes of the gates' completeness, but for what the feed logs
// and for what passes by itself.
func (s *gateStore) tell(now *gateList) {
	switch {
	case now.err == nil && s.told:
		s.log.Info("all gates are known again", "gates", len(now.gates))
		s.told = false
	case now.err == nil, s.told, !s.feed.isLive(), errors.Is(now.err, errNotConfirmed), errors.Is(now.err, errSettling):
	default:
		s.log.Error(now.err, "gates may be missing, keeping what they closed")
		s.told = true
	}
}

// sameGate tells whether two states of a NodeGate ask for the same. Their
// status, which is our own doing, may differ.
func sameGate(a, b *v1alpha1.NodeGate) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Generation == b.Generation && a.ReadError == b.ReadError
}

// whyIncomplete is why the gates may not be all, as of now, unless that is only
// a matter of time.
func (s *gateStore) whyIncomplete() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.incomplete()
	if errors.Is(err, errSettling) {
		return nil
	}
	return err
}

func (s *gateStore) incomplete() error {
	switch feed := s.feed.status(); {
	case feed.Err != nil:
		return fmt.Errorf("observing NodeGates: %w", feed.Err)
	case !feed.Live:
		return errGatesNotRead
	}
	return s.err
}
