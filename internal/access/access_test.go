// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer authenticates the tokens "reader" and "other", and authorizes reader to get
// /metrics.
type apiServer struct {
	mu      sync.Mutex
	away    bool
	revoked bool
	slow    time.Duration // duration of each review
	asked   int
	at      int // current concurrent reviews
	most    int // maximum of at
}

func (a *apiServer) Create(ctx context.Context, review client.Object, _ ...client.CreateOption) error {
	a.mu.Lock()
	a.asked++
	a.at++
	a.most = max(a.most, a.at)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.at--
		a.mu.Unlock()
	}()
	select {
	case <-time.After(a.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if a.away {
		return errors.New("connection refused")
	}
	switch r := review.(type) {
	case *authenticationv1.TokenReview:
		r.Status.Authenticated = !a.revoked && (r.Spec.Token == "reader" || r.Spec.Token == "other")
		r.Status.User = authenticationv1.UserInfo{
			Username: r.Spec.Token, Groups: []string{"group"}, Extra: map[string]authenticationv1.ExtraValue{"a": {"b"}},
		}
	case *authorizationv1.SubjectAccessReview:
		whole := len(r.Spec.Groups) == 1 && r.Spec.Groups[0] == "group" && r.Spec.Extra["a"][0] == "b"
		asked := *r.Spec.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
		r.Status.Allowed = whole && asked && r.Spec.User == "reader"
	}
	return nil
}

// asks sends a request with this Authorization header, and returns the status of the answer.
func asks(f *Filter, method, path, authorization string) int {
	request := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	answer := httptest.NewRecorder()
	f.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})).ServeHTTP(answer, request)
	return answer.Code
}

func TestWhoMayRead(t *testing.T) {
	for _, test := range []struct {
		method, path, authorization string
		want, reviews               int
	}{
		{"GET", "/metrics", "", http.StatusUnauthorized, 0},
		{"GET", "/metrics", "Basic cmVhZGVyOg==", http.StatusUnauthorized, 0},
		{"GET", "/metrics", "Bearer ", http.StatusUnauthorized, 0},
		{"GET", "/metrics", "Bearer made-up", http.StatusUnauthorized, 1},
		{"GET", "/metrics", "Bearer other", http.StatusForbidden, 2},
		{"GET", "/nodes/n1", "Bearer reader", http.StatusForbidden, 2},
		{"GET", "/metrics", "Bearer reader", http.StatusOK, 2},
		{"GET", "/metrics", "bearer  reader", http.StatusOK, 2},
		{"POST", "/metrics", "Bearer reader", http.StatusMethodNotAllowed, 0},
	} {
		t.Run(fmt.Sprintf("%s %s %s", test.method, test.path, test.authorization), func(t *testing.T) {
			api := &apiServer{}
			f := New(api, logr.Discard())
			for range 2 { // the second decision is cached
				if got := asks(f, test.method, test.path, test.authorization); got != test.want {
					t.Errorf("status %d, want %d", got, test.want)
				}
			}
			if api.asked != test.reviews {
				t.Errorf("%d reviews, want %d", api.asked, test.reviews)
			}
		})
	}
}

func TestDecisionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		f := New(api, logr.Discard())
		expect := func(when, token string, want int) {
			t.Helper()
			if got := asks(f, "GET", "/metrics", "Bearer "+token); got != want {
				t.Errorf("%s: status %d, want %d", when, got, want)
			}
		}
		expect("at first", "reader", http.StatusOK)
		api.away = true
		<-time.After(allowedFor - time.Second)
		expect("API server down, decision cached", "reader", http.StatusOK)
		<-time.After(2 * time.Second)
		expect("API server down, decision expired", "reader", http.StatusServiceUnavailable)
		api.away = false
		expect("API server up: errors are not cached", "reader", http.StatusOK)
		api.revoked = true
		<-time.After(allowedFor + time.Second)
		expect("token revoked", "reader", http.StatusUnauthorized)
		api.revoked = false
		expect("denial cached", "reader", http.StatusUnauthorized)
		<-time.After(deniedFor + time.Second)
		expect("denial expired", "reader", http.StatusOK)
	})
}

// Clients without access can neither cause many concurrent reviews nor evict the decisions
// about clients with access.
func TestFloodOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		f := New(api, logr.Discard())
		if got := asks(f, "GET", "/metrics", "Bearer reader"); got != http.StatusOK {
			t.Fatalf("status %d", got)
		}
		api.slow = 5 * time.Millisecond
		var clients sync.WaitGroup
		for i := range 3 * maxDecisions {
			clients.Go(func() {
				if got := asks(f, "GET", "/metrics", fmt.Sprintf("Bearer made-up-%d", i)); got != http.StatusUnauthorized {
					t.Errorf("status %d", got)
				}
			})
		}
		clients.Wait()
		if api.most != maxReviews {
			t.Errorf("%d concurrent reviews, want %d", api.most, maxReviews)
		}
		api.away = true
		if got := asks(f, "GET", "/metrics", "Bearer reader"); got != http.StatusOK {
			t.Errorf("status %d after the flood", got)
		}
		// If the API server does not answer, no client waits for longer than the limit.
		api.away, api.slow = false, time.Hour
		for range 3 * maxReviews {
			clients.Go(func() {
				began := time.Now()
				if got := asks(f, "GET", "/metrics", "Bearer other"); got != http.StatusServiceUnavailable || time.Since(began) != reviewTimeout {
					t.Errorf("status %d after %v", got, time.Since(began))
				}
			})
		}
		clients.Wait()
	})
}
