// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// An API server that does not stream lists returns them in pages. All pages are the state
// as of the first one. If the token of a page expires, everything is listed again at once.
func TestKnownAtOfAPagedList(t *testing.T) {
	const perRequest = 2 * time.Second
	for name, c := range map[string]struct {
		expires int // the request whose token has expired, if any
		want    int // the request as of which everything is known
	}{
		"all pages":       {want: 0},
		"a token expires": {expires: 2, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, requests := time.Now(), 0
				inner := &cache.ListWatch{
					ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
						<-time.After(perRequest)
						requests++
						if requests == c.expires+1 && o.Continue != "" {
							return nil, apierrors.NewResourceExpired("the token has expired")
						}
						page := &corev1.NodeList{Items: []corev1.Node{*kubetest.Node("a", "1")}}
						page.ResourceVersion = "100"
						if requests < 4 {
							page.Continue = "more"
						}
						return page, nil
					},
					WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
						if o.SendInitialEvents != nil {
							return nil, errors.New("lists are not streamed")
						}
						return watch.NewFake(), nil
					},
				}
				r := &Reflector[*corev1.Node, string]{
					Observer: NewObserver("nodes", logr.Discard(), clock.RealClock{}, func() {}),
					Convert:  func(n *corev1.Node) string { return n.Name }, Sink: &recorder{},
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go r.Run(ctx, inner, &corev1.Node{})
				kubetest.Pass(time.Minute)
				if !r.IsLive() || requests != 4 {
					t.Fatalf("live %t after %d requests, want 4", r.IsLive(), requests)
				}
				if got, want := r.KnownAt().Sub(begin), time.Duration(c.want)*perRequest; got != want {
					t.Errorf("known as of %s, want %s", got, want)
				}
			})
		})
	}
}

// client-go does not wait for a list that it cancels, which may request its next page later.
func TestCancelledListLeavesTheNextStream(t *testing.T) {
	requests := 0
	r := &Reflector[*corev1.Node, string]{Observer: NewObserver("nodes", logr.Discard(), clock.RealClock{}, func() {}), Sink: &recorder{}}
	lw := r.listWatch(&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		requests++
		return &corev1.NodeList{}, nil
	}})
	next := &stream[*corev1.Node, string]{}
	r.stream = next
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lw.ListWithContext(ctx, metav1.ListOptions{Continue: "more"}); !errors.Is(err, context.Canceled) || requests != 0 || r.stream != next {
		t.Errorf("%v after %d requests; the next stream was lost: %t", err, requests, r.stream != next)
	}
}
