// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// pagedServer is an API server that returns lists in pages.
type pagedServer struct {
	// pages is the number of pages of a list. Each takes perPage.
	pages   int
	perPage time.Duration
	// stream streams a list, if that is possible.
	stream func() (watch.Interface, error)
	// watch starts a watch, given the number of watches before.
	watch func(ctx context.Context, before int) (watch.Interface, error)

	lists, watches int
	// listed is the time of the last request for a list, and left the number of its pages that
	// have not been requested.
	listed time.Time
	left   int
	// limits are the limits of all requests for a page.
	limits []int64
}

func (s *pagedServer) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		s.lists++
		s.listed, s.left = time.Now(), s.pages
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.perPage):
	}
	s.left--
	s.limits = append(s.limits, o.Limit)
	page := &corev1.NodeList{Items: []corev1.Node{*kubetest.Node("a", "1")}}
	page.ResourceVersion = "100"
	if s.left > 0 && o.Limit > 0 {
		page.Continue = "more"
	}
	return page, nil
}

func (s *pagedServer) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: s.list,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents == nil {
				s.watches++
				return s.watch(ctx, s.watches-1)
			}
			if s.stream == nil {
				return nil, errors.New("lists are not streamed")
			}
			return s.stream()
		},
	}
}

// observe runs a test with a reflector of the server's nodes.
func (s *pagedServer) observe(t *testing.T, test func(t *testing.T, r *Reflector[*corev1.Node, string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &Reflector[*corev1.Node, string]{
			Observer: NewObserver("nodes", logr.Discard(), clock.RealClock{}, func() {}),
			Convert:  func(n *corev1.Node) string { return n.Name }, Sink: &recorder{},
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx, s.listWatch(), &corev1.Node{})
		test(t, r)
	})
}

// A list is requested in pages even if the one before it was streamed, or had one page: a
// single response with all objects would be held in memory as a whole.
func TestEveryListIsPaged(t *testing.T) {
	for name, streamed := range map[string]bool{"after a stream": true, "after one page": false} {
		t.Run(name, func(t *testing.T) {
			s := &pagedServer{pages: 1, perPage: time.Second}
			if streamed {
				s.stream = func() (watch.Interface, error) {
					w, end := watch.NewRaceFreeFake(), initialEnd()
					end.ResourceVersion = "100"
					w.Action(watch.Bookmark, end)
					time.AfterFunc(time.Minute, w.Stop)
					return w, nil
				}
			}
			s.watch = func(_ context.Context, before int) (watch.Interface, error) {
				if before > 0 {
					return watch.NewFake(), nil
				}
				s.stream, s.pages, s.limits = nil, 3, nil
				return nil, errors.New("busy")
			}
			s.observe(t, func(t *testing.T, r *Reflector[*corev1.Node, string]) {
				kubetest.Pass(2 * time.Minute)
				if !r.IsLive() || !r.KnownAt().Equal(s.listed) {
					t.Errorf("live %t, known as of %s, want %s", r.IsLive(), r.KnownAt(), s.listed)
				}
				if want := []int64{pageSize, pageSize, pageSize}; !slices.Equal(s.limits, want) {
					t.Errorf("requests with the limits %v, want %v", s.limits, want)
				}
			})
		})
	}
}

// A watch counts as silent SilentAfter after the list has ended, however long that took.
func TestSlowListIsNotSilent(t *testing.T) {
	const firstBookmark, otherBookmarks = 2 * time.Minute, time.Minute
	s := &pagedServer{pages: 5, perPage: 15 * time.Second}
	s.watch = func(ctx context.Context, _ int) (watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		go func() {
			for wait := firstBookmark; ; wait = otherBookmarks {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
					bookmark := &corev1.Node{}
					bookmark.ResourceVersion = "101"
					w.Action(watch.Bookmark, bookmark)
				}
			}
		}()
		return w, nil
	}
	s.observe(t, func(t *testing.T, r *Reflector[*corev1.Node, string]) {
		r.Silenced = func(status Status) { t.Errorf("silent: %+v", status) }
		begin, listed := time.Now(), time.Duration(s.pages)*s.perPage
		kubetest.Pass(listed + firstBookmark/2)
		if known, received := r.KnownAt().Sub(begin), r.Status().Received.Sub(begin); known != 0 || received != listed {
			t.Errorf("known as of %s, received after %s; want 0 and %s", known, received, listed)
		}
		kubetest.Pass(10 * time.Minute)
		if !r.IsLive() || s.lists != 1 {
			t.Errorf("live %t after %d lists, want one", r.IsLive(), s.lists)
		}
	})
}
