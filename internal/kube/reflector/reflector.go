// SPDX-License-Identifier: Apache-2.0

// Package reflector feeds a Sink from a list and a watch of the API server, and reports
// whether the Sink is still being kept up to date. It converts each object as it arrives,
// so that no whole objects are kept.
package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Observer tracks the status of one feed. It observes the feed's requests, because a
// reflector's error handler does not receive every error.
type Observer struct {
	freshness
	name string
	log  logr.Logger
	// LiveChanged is called after the feed has become live or has ceased to be, from the
	// feed's goroutine.
	LiveChanged func()

	// Silenced, unless nil, is called without locks when the feed's watch has become
	// silent.
	Silenced func(Status)

	mu     sync.Mutex
	synced bool
	live   bool
	err    error
	// listStarted is when the feed last started to read everything.
	listStarted time.Time
	// version is Observer.Version.
	version string
}

// NewObserver returns an Observer for a feed. name is described at Status.Name, and
// liveChanged at Observer.LiveChanged.
func NewObserver(name string, log logr.Logger, c clock.PassiveClock, liveChanged func()) *Observer {
	return &Observer{freshness: freshness{clock: c}, name: name, log: log.WithValues("feed", name), LiveChanged: liveChanged}
}

// Status returns the current status of the feed.
func (o *Observer) Status() Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Status{Name: o.name, Synced: o.synced, Live: o.live, Err: o.err, Received: o.lastReceived()}
}

// IsLive reports whether the feed is being kept up to date.
func (o *Observer) IsLive() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.live
}

// Version returns the resource version up to which all changes have been stored, or "" if nothing has.
func (o *Observer) Version() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.version
}

func (o *Observer) reached(version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version = version
}

// Listing records that everything is about to be read again. Until then the facts may be
// arbitrarily old.
func (o *Observer) Listing() {
	o.change(func() { o.live, o.listStarted = false, o.clock.Now() })
}

// Listed records that everything has been read and is in the sink.
func (o *Observer) Listed() {
	o.change(func() {
		o.begin(o.listStarted)
		o.synced, o.live, o.err = true, true, nil
	})
}

// silent records that nothing has been received for SilentAfter, so that the facts may be
// arbitrarily old.
func (o *Observer) silent() {
	o.change(func() { o.synced, o.live, o.err = false, false, ErrSilent })
	if o.Silenced != nil {
		o.Silenced(o.Status())
	}
}

// failed records that a request has failed. The facts may be as old as the outage until
// everything has been read again.
func (o *Observer) failed(err error) { o.change(func() { o.live, o.err = false, err }) }

func (o *Observer) change(apply func()) {
	o.mu.Lock()
	live, err := o.live, o.err
	apply()
	liveChanged := live != o.live
	now := o.err
	o.mu.Unlock()
	switch {
	case err == nil && now != nil:
		o.log.Error(now, "cannot observe, retrying")
	case err != nil && now == nil:
		o.log.Info("observing again")
	}
	if liveChanged {
		o.LiveChanged()
	}
}

// Sink stores facts. Its methods are called by one goroutine.
type Sink[F any] interface {
	// Put adds or replaces a fact.
	Put(F)
	// Drop removes a fact.
	Drop(F)
	// Replace replaces all facts.
	Replace([]F)
}

// VersionedSink is a Sink that needs the resource version of a list.
type VersionedSink[F any] interface {
	// ReplaceAt replaces all facts by the state of the API server at a resource version.
	ReplaceAt(all []F, version string)
}

// replaceAll replaces all facts of a sink by the state at a resource version.
func replaceAll[F any](s Sink[F], all []F, version string) {
	if d, ok := s.(VersionedSink[F]); ok {
		d.ReplaceAt(all, version)
		return
	}
	s.Replace(all)
}

// Reflector is the store that a client-go reflector fills. It converts objects to facts
// one by one. If the API server does not stream a list, it converts each page as that
// arrives, so that objects are held in memory for one page only. The exception is a list
// whose token expires between two pages: client-go repeats it in a single response, so
// that a slow list ends, too.
type Reflector[O runtime.Object, F any] struct {
	*Observer
	Convert func(O) F
	Sink    Sink[F]
	// PageSize is the number of objects in a page of a list that the API server does not
	// stream. Defaults to 500.
	PageSize int64
	// stream is the watch whose initial events are being received, if any. Only the request
	// of the reflector that has not been cancelled uses it.
	stream *stream[O, F]
	// refused is true after a request to watch changes has failed, until a watch, or a stream
	// of the initial state, has been accepted. Only the reflector's goroutine uses it.
	refused bool
}

var (
	_ cache.ReflectorStore         = (*Reflector[runtime.Object, any])(nil)
	_ cache.ResourceVersionUpdater = (*Reflector[runtime.Object, any])(nil)
)

// fact converts obj. It returns false if obj is neither an object of the kind nor a fact.
func (s *Reflector[O, F]) fact(obj any) (F, bool) {
	if carried, ok := obj.(carrier); ok {
		obj = carried.fact
	}
	if f, ok := obj.(F); ok {
		return f, true
	}
	if o, ok := obj.(O); ok {
		return s.Convert(o), true
	}
	var none F
	return none, false
}

func (s *Reflector[O, F]) take(obj any, take func(F)) error {
	f, ok := s.fact(obj)
	if !ok {
		return fmt.Errorf("observing %s: unexpected %T", s.name, obj)
	}
	take(f)
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater. It is called for each
// event of the watch, after it has been stored, and for each bookmark. Bookmarks reach the store in no
// other way.
func (s *Reflector[O, F]) UpdateResourceVersion(version string) {
	s.received()
	s.reached(version)
}

// Add implements cache.ReflectorStore.
func (s *Reflector[O, F]) Add(obj any) error { return s.take(obj, s.Sink.Put) }

// Update implements cache.ReflectorStore.
func (s *Reflector[O, F]) Update(obj any) error { return s.take(obj, s.Sink.Put) }

// Delete implements cache.ReflectorStore.
func (s *Reflector[O, F]) Delete(obj any) error { return s.take(obj, s.Sink.Drop) }

// Replace implements cache.ReflectorStore.
func (s *Reflector[O, F]) Replace(objs []any, version string) error {
	if s.stream != nil {
		s.stream.finish(version)
		s.stream, s.refused = nil, false
	} else {
		facts := make([]F, 0, len(objs))
		for _, obj := range objs {
			if err := s.take(obj, func(f F) { facts = append(facts, f) }); err != nil {
				return err
			}
		}
		replaceAll(s.Sink, facts, version)
	}
	s.reached(version)
	if !s.refused { // else the feed would be live after each list, until the watch fails again
		s.Listed()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *Reflector[O, F]) Resync() error { return nil }

// page converts one page of a list to a page of facts.
func (s *Reflector[O, F]) page(list runtime.Object) (runtime.Object, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("observing %s: %w", s.name, err)
	}
	page := &metainternalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), RemainingItemCount: m.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		return s.take(item, func(f F) { page.Items = append(page.Items, carrier{fact: f}) })
	})
	return page, err
}

// carrier wraps a fact where client-go requires an object.
type carrier struct{ fact any }

// GetObjectKind implements runtime.Object.
func (carrier) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (c carrier) DeepCopyObject() runtime.Object { return c }

// latestVersion makes a request return the API server's current state. A reflector would
// request a state that is not older than the last one that it has seen, so an API server
// or a cache that is stuck at that state could return it forever. "0" would accept any
// old state, in which a gate or a pod that was deleted long ago may still exist.
const latestVersion = ""

// listWatch wraps a feed's requests in order to report their results to the observer.
func (s *Reflector[O, F]) listWatch(inner *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if ctx.Err() != nil { // client-go continues a cancelled list while the next one runs
				return nil, ctx.Err()
			}
			if o.Continue == "" { // later pages are the state as of the first one
				s.Listing()
			}
			s.stream = nil
			o.ResourceVersion = latestVersion
			list, err := inner.ListWithContext(ctx, o)
			if err != nil {
				return nil, s.noteError(ctx, err)
			}
			s.received()
			return s.page(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				s.Listing()
				o.ResourceVersion = latestVersion
				w, err := inner.WatchWithContext(ctx, o)
				if err != nil {
					return nil, notRetriable(err)
				}
				s.stream = newStream[O](w, s.Sink, func(o any) (F, bool) {
					s.received()
					return s.fact(o)
				})
				return s.stream, nil
			}
			w, err := inner.WatchWithContext(ctx, o)
			if err != nil {
				s.refused = true
				return nil, notRetriable(s.noteError(ctx, err))
			}
			if s.refused { // everything was listed since: a watch is not repeated (see notRetriable)
				s.refused = false
				s.Listed()
			}
			return w, nil
		},
	}
}

// noteError reports an error to the observer, unless the feed is being stopped.
func (s *Reflector[O, F]) noteError(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.failed(err)
	}
	return err
}

// notRetriable hides from a reflector that the API server refused a connection or
// rejected a request (429). After these errors a reflector repeats a watch.
//
// A watch of changes must not be repeated: it would be resumed at the old resource
// version, and nothing shows when all changes of the outage have arrived. Until then, facts
// as old as the outage would count as current. After any other error the reflector lists
// everything again.
//
// A stream of the initial list must not be repeated either: the reflector would not return
// until a stream succeeds, so nothing would report the errors, and it sleeps between its
// attempts, ignoring its context. After any other error it falls back to a plain list, whose
// error is reported.
func notRetriable(err error) error { return errors.New(err.Error()) }

// Backoff of a feed's requests. It is short because gates cannot open until the feeds are
// live again. After steadyFor without a failure it starts from retryFirst again. The node agent's
// watches use the same times (internal/kube/jsonclient/collection.go).
const (
	retryFirst = 200 * time.Millisecond
	// RetryMax is the maximum backoff.
	RetryMax  = 5 * time.Second
	steadyFor = time.Minute
)

// pageSize is the default of PageSize. A page size is set because client-go requests a list in
// a single response if the one before it was streamed, or had one page. It expects the answer
// from the watch cache then, but it does not know that all requests ask for the latest version.
const pageSize = 500

// Run observes until the context ends. example is an object of the kind.
func (s *Reflector[O, F]) Run(ctx context.Context, inner *cache.ListWatch, example O) {
	backoff := wait.Backoff{Duration: retryFirst, Cap: RetryMax, Factor: 2, Steps: 10, Jitter: 0.5}
	r := cache.NewReflectorWithOptions(s.listWatch(inner), example, s, cache.ReflectorOptions{Name: s.name, Backoff: &backoff})
	r.WatchListPageSize = cmp.Or(s.PageSize, pageSize)
	// The reflector's own loop would log every error. The observer already logs most of
	// them.
	ctx = klog.NewContext(ctx, s.log.V(1))
	delay := backoff.DelayWithReset(clock.RealClock{}, steadyFor)
	// Until ends only with the context; its error contains nothing else.
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		watchCtx, cancel := s.untilSilent(ctx)
		defer cancel()
		err := r.ListAndWatchWithContext(watchCtx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(context.Cause(watchCtx), ErrSilent):
			s.silent()
		case err != nil:
			s.log.V(1).Info("listing again", "error", err.Error())
		}
		return false, nil
	})
}
