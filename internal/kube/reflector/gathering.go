// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A client-go reflector collects the initial events of a watch in a temporary store, by
// name, and passes all objects on at the end. For a large fleet that temporary store is
// larger than the facts. Therefore initial events bypass the reflector: they are
// converted to facts at once, and the reflector passes on nothing.

// Gatherer is a Sink that accepts listed facts one by one while they arrive.
type Gatherer[F any] interface {
	// Gather begins a new state. add adds a fact to it, done replaces the current state
	// with it.
	Gather() (add func(F), done func())
}

// gathering collects the initial events of one watch.
type gathering[F any] struct {
	Sink Sink[F]
	add  func(F)
	done func(version string)
	// later has the changes to streamed objects that arrived before the end of the
	// initial events.
	later []func()
}

func newGathering[F any](s Sink[F]) *gathering[F] {
	g := &gathering[F]{Sink: s}
	if of, ok := s.(Gatherer[F]); ok {
		add, done := of.Gather()
		g.add, g.done = add, func(string) { done() }
		return g
	}
	var all []F
	g.add = func(f F) { all = append(all, f) }
	g.done = func(version string) { replaceAll(s, all, version) }
	return g
}

// take adds one event.
func (g *gathering[F]) take(event watch.EventType, f F) {
	switch {
	case event == watch.Deleted:
		g.later = append(g.later, func() { g.Sink.Drop(f) })
	case event == watch.Modified || len(g.later) > 0:
		g.later = append(g.later, func() { g.Sink.Put(f) })
	default:
		g.add(f)
	}
}

// finish passes what was gathered to the sink, as the state at a resource version.
func (g *gathering[F]) finish(version string) {
	g.done(version)
	for _, apply := range g.later {
		apply()
	}
}

// stream is a watch that withholds its initial events from the reflector. After them it
// passes on the watch unchanged.
type stream[O runtime.Object, F any] struct {
	watch.Interface
	gathering *gathering[F]
	fact      func(any) (F, bool)

	toReflector chan watch.Event
	stopping    sync.Once
	stopped     chan struct{}
	over        atomic.Bool
}

func newStream[O runtime.Object, F any](inner watch.Interface, to Sink[F], fact func(any) (F, bool)) *stream[O, F] {
	s := &stream[O, F]{
		Interface: inner, gathering: newGathering(to), fact: fact,
		toReflector: make(chan watch.Event), stopped: make(chan struct{}),
	}
	go s.pump()
	return s
}

// Stop implements watch.Interface.
func (s *stream[O, F]) Stop() {
	s.stopping.Do(func() { close(s.stopped) })
	s.Interface.Stop()
}

// ResultChan implements watch.Interface. Reflectors call it again after the initial
// events.
func (s *stream[O, F]) ResultChan() <-chan watch.Event {
	if s.over.Load() {
		return s.Interface.ResultChan()
	}
	return s.toReflector
}

// finish is called by the reflector's goroutine when the initial events have ended. pump
// no longer reads the watch then.
func (s *stream[O, F]) finish(version string) {
	s.over.Store(true)
	s.gathering.finish(version)
}

func (s *stream[O, F]) pump() {
	for event := range s.Interface.ResultChan() {
		if s.gathers(event) {
			continue
		}
		select {
		case s.toReflector <- event:
		case <-s.stopped:
			return
		}
		if endsInitialEvents(event) {
			return
		}
	}
	close(s.toReflector)
}

// gathers consumes initial events. It returns false for events that the reflector must
// see.
func (s *stream[O, F]) gathers(event watch.Event) bool {
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		fact, ok := s.fact(event.Object)
		if ok {
			s.gathering.take(event.Type, fact)
		}
		return ok
	}
	return false
}

func endsInitialEvents(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	m, err := meta.Accessor(event.Object)
	return err == nil && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
