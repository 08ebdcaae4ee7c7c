// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A sink is the store of a reflector. It stores nothing.
type sink struct {
	// existing receives the objects that exist at first, and event each later change. Nil
	// functions drop them.
	existing func(objects []any)
	event    func(watch.EventType, runtime.Object)
	// interrupted is called when the watch is resumed because the API server has ended it.
	interrupted func()

	synced chan struct{}
	once   sync.Once
}

// start watches the objects of a source with a reflector, as nodegate does, so that the API
// server also sends both the same: it compresses a watch that begins with all existing
// objects. It returns when the existing objects have been received.
func (s *sink) start(ctx context.Context, source *cache.ListWatch, example runtime.Object) error {
	s.synced = make(chan struct{})
	source = s.counted(source)
	options := cache.ReflectorOptions{MinWatchTimeout: wholeRun}
	go cache.NewReflectorWithOptions(source, example, s, options).RunWithContext(ctx)
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// counted returns a source that reports each watch but the first.
func (s *sink) counted(source *cache.ListWatch) *cache.ListWatch {
	resumed := false
	counted := *source
	counted.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if resumed && ctx.Err() == nil {
			s.interrupted()
		}
		resumed = true
		return source.WatchWithContext(ctx, o)
	}
	return &counted
}

// Replace receives the existing objects, at first and after the API server has forgotten
// where the watch ended.
func (s *sink) Replace(objects []any, _ string) error {
	first := false
	s.once.Do(func() {
		first = true
		if s.existing != nil {
			s.existing(objects)
		}
		close(s.synced)
	})
	for _, o := range objects {
		if !first {
			_ = s.send(watch.Modified, o) // never fails
		}
	}
	return nil
}

// Add receives a new object.
func (s *sink) Add(o any) error { return s.send(watch.Added, o) }

// Update receives a changed object.
func (s *sink) Update(o any) error { return s.send(watch.Modified, o) }

// Delete receives the last state of a deleted object.
func (s *sink) Delete(o any) error { return s.send(watch.Deleted, o) }

// Resync does nothing, because nothing is stored.
func (s *sink) Resync() error { return nil }

func (s *sink) send(change watch.EventType, o any) error {
	if object, ok := o.(runtime.Object); ok && s.event != nil {
		s.event(change, object)
	}
	return nil
}
