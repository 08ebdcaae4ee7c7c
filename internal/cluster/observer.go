// SPDX-License-Identifier: Apache-2.0

package cluster

import (
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
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// observer knows how one feed fares. It listens to the feed's requests rather
// than to the reflector's error handler, which is not told of everything.
type observer struct {
	name string
	log  logr.Logger
	// turned is called after live has changed, from the feed's goroutine.
	turned func()

	mu     sync.Mutex
	synced bool
	live   bool
	err    error
}

func newObserver(name string, log logr.Logger, turned func()) *observer {
	return &observer{name: name, log: log.WithValues("feed", name), turned: turned}
}

func (o *observer) status() FeedStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return FeedStatus{Name: o.name, Synced: o.synced, Live: o.live, Err: o.err}
}

func (o *observer) isLive() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.live
}

// listing: everything is about to be read anew. What is known may be far
// behind from here on.
func (o *observer) listing() { o.turn(func() { o.live = false }) }

// listed: everything has been read, and is in the store.
func (o *observer) listed() { o.turn(func() { o.synced, o.live, o.err = true, true, nil }) }

// resumed: the watch goes on where it was lost.
func (o *observer) resumed() { o.turn(func() { o.live, o.err = o.synced, nil }) }

// failed: a request failed, and will be tried again.
func (o *observer) failed(err error) { o.turn(func() { o.live, o.err = false, err }) }

func (o *observer) turn(change func()) {
	o.mu.Lock()
	live, err := o.live, o.err
	change()
	turned := live != o.live
	now := o.err
	o.mu.Unlock()
	switch {
	case err == nil && now != nil:
		o.log.Error(now, "cannot observe, retrying")
	case err != nil && now == nil:
		o.log.Info("observing again")
	}
	if turned {
		o.turned()
	}
}

// sink takes in facts. Its methods are called by one goroutine.
type sink[F any] interface {
	// put takes in a fact that is new or has changed.
	put(F)
	// drop takes in that there is no such thing any more.
	drop(F)
	// replace takes in that these are all.
	replace([]F)
}

// intake is the store that a reflector fills. It turns objects into facts one
// by one, also while they are listed, so that a whole list of objects is never
// held.
type intake[O runtime.Object, F any] struct {
	*observer
	convert func(O) F
	sink    sink[F]
	// stream is the watch whose initial events are on their way, if any. It is the
	// reflector's goroutine's.
	stream *stream[O, F]
}

var _ cache.ReflectorStore = (*intake[runtime.Object, any])(nil)

// fact is false for what is neither an object of the kind nor a fact.
func (s *intake[O, F]) fact(obj any) (F, bool) {
	if carried, ok := obj.(carrier); ok {
		obj = carried.fact
	}
	if f, ok := obj.(F); ok {
		return f, true
	}
	if o, ok := obj.(O); ok {
		return s.convert(o), true
	}
	var none F
	return none, false
}

func (s *intake[O, F]) take(obj any, take func(F)) error {
	f, ok := s.fact(obj)
	if !ok {
		return fmt.Errorf("observing %s: unexpected %T", s.name, obj)
	}
	take(f)
	return nil
}

// Add implements cache.ReflectorStore.
func (s *intake[O, F]) Add(obj any) error { return s.take(obj, s.sink.put) }

// Update implements cache.ReflectorStore.
func (s *intake[O, F]) Update(obj any) error { return s.take(obj, s.sink.put) }

// Delete implements cache.ReflectorStore.
func (s *intake[O, F]) Delete(obj any) error { return s.take(obj, s.sink.drop) }

// Replace implements cache.ReflectorStore.
func (s *intake[O, F]) Replace(objs []any, _ string) error {
	if s.stream != nil {
		s.stream.finish()
		s.stream = nil
		s.listed()
		return nil
	}
	facts := make([]F, 0, len(objs))
	for _, obj := range objs {
		if err := s.take(obj, func(f F) { facts = append(facts, f) }); err != nil {
			return err
		}
	}
	s.sink.replace(facts)
	s.listed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *intake[O, F]) Resync() error { return nil }

// page turns one page of a list into a page of facts.
func (s *intake[O, F]) page(list runtime.Object) (runtime.Object, error) {
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

// carrier carries a fact where client-go asks for an object.
type carrier struct{ fact any }

func (carrier) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (c carrier) DeepCopyObject() runtime.Object { return c }

// listWatch wraps a feed's requests so that the observer hears of them.
func (s *intake[O, F]) listWatch(inner *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.listing()
			s.stream = nil
			if o.ResourceVersion == "0" {
				// Any old state would do for "0": a gate or a pod that was deleted long
				// ago could be there again, and a new one missing.
				o.ResourceVersion = ""
			}
			list, err := inner.ListWithContext(ctx, o)
			if err != nil {
				return nil, s.note(ctx, err)
			}
			return s.page(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				s.listing()
				w, err := inner.WatchWithContext(ctx, o)
				if err != nil {
					return nil, plain(err)
				}
				s.stream = newStream[O](w, s.sink, s.fact)
				return s.stream, nil
			}
			w, err := inner.WatchWithContext(ctx, o)
			if err != nil {
				return nil, s.note(ctx, err)
			}
			s.resumed()
			return w, nil
		},
	}
}

// note tells the observer of an error, unless the feed is being stopped.
func (s *intake[O, F]) note(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.failed(err)
	}
	return err
}

// plain hides that a connection was refused. A reflector would sleep upon
// that and try to stream again, deaf to its context and telling nobody; upon
// any other error it falls back to a plain list.
func plain(err error) error {
	if err != nil && utilnet.IsConnectionRefused(err) {
		return errors.New(err.Error())
	}
	return err
}

// Feeds come back soon after the API server does: a gate opens no sooner.
// After steadyFor without a failure the first retry is quick again.
const (
	retryFirst = 200 * time.Millisecond
	retryMax   = 5 * time.Second
	steadyFor  = time.Minute
)

// run observes until the context ends. The example is an object of the kind.
func (s *intake[O, F]) run(ctx context.Context, inner *cache.ListWatch, example O) {
	backoff := wait.Backoff{Duration: retryFirst, Cap: retryMax, Factor: 2, Steps: 10, Jitter: 0.5}
	r := cache.NewReflectorWithOptions(s.listWatch(inner), example, s, cache.ReflectorOptions{Name: s.name, Backoff: &backoff})
	// The reflector's own loop would log every error, most of which the observer
	// has told already.
	ctx = klog.NewContext(ctx, s.log.V(1))
	delay := backoff.DelayWithReset(clock.RealClock{}, steadyFor)
	// It ends with the context, and says nothing else.
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := r.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			s.log.V(1).Info("reading anew", "error", err.Error())
		}
		return false, nil
	})
}
