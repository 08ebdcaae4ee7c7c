// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A reflector puts everything that a watch streams at its beginning into a store of its
// own, by name, and hands over all of it in the end. Of a large fleet that store is larger
// than what is kept. So these events never reach the reflector: they become facts at once,
// and the reflector hands over nothing.

// gatherer is a sink that takes in what is listed while it arrives.
type gatherer[F any] interface {
	// gather has add take in one fact after the other, and done replace what is known by these.
	gather() (add func(F), done func())
}

// gathering is what one watch has streamed so far.
type gathering[F any] struct {
	sink sink[F]
	add  func(F)
	done func()
	// later is what has happened since, to what was streamed.
	later []func()
}

func newGathering[F any](s sink[F]) *gathering[F] {
	g := &gathering[F]{sink: s}
	if of, ok := s.(gatherer[F]); ok {
		g.add, g.done = of.gather()
		return g
	}
	var all []F
	g.add = func(f F) { all = append(all, f) }
	g.done = func() { s.replace(all) }
	return g
}

// take takes in one event.
func (g *gathering[F]) take(event watch.EventType, f F) {
	switch {
	case event == watch.Deleted:
		g.later = append(g.later, func() { g.sink.drop(f) })
	case event == watch.Modified || len(g.later) > 0:
		g.later = append(g.later, func() { g.sink.put(f) })
	default:
		g.add(f)
	}
}

// finish hands over what was gathered.
func (g *gathering[F]) finish() {
	g.done()
	for _, happened := range g.later {
		happened()
	}
}

// stream is a watch that keeps its initial events from the reflector. When they are over it
// is no more than the watch itself.
type stream[O runtime.Object, F any] struct {
	watch.Interface
	gathering *gathering[F]
	fact      func(any) (F, bool)

	toReflector chan watch.Event
	stopping    sync.Once
	stopped     chan struct{}
	over        atomic.Bool
}

func newStream[O runtime.Object, F any](inner watch.Interface, to sink[F], fact func(any) (F, bool)) *stream[O, F] {
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

// ResultChan implements watch.Interface. Reflectors ask again after the initial events.
func (s *stream[O, F]) ResultChan() <-chan watch.Event {
	if s.over.Load() {
		return s.Interface.ResultChan()
	}
	return s.toReflector
}

// finish is called by the reflector's goroutine after it was told that the initial events
// are over. Nobody reads the watch in its stead any more.
func (s *stream[O, F]) finish() {
	s.over.Store(true)
	s.gathering.finish()
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

// gathers is false for what the reflector is to see.
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
