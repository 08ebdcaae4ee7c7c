// SPDX-License-Identifier: Apache-2.0

package election

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// leaseServer is an API server with one Lease, as a transport. It has no watches.
type leaseServer struct {
	mu    sync.Mutex
	lease []byte
	// rejects makes it reject all requests, and ask to repeat them five seconds later, as an API server
	// does that is being stopped (--shutdown-send-retry-after).
	rejects bool
}

func (s *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	code, body := http.StatusOK, []byte(nil)
	switch {
	case s.rejects:
		code = http.StatusTooManyRequests
		header.Set("Retry-After", "5")
	case r.URL.Query().Has("watch"):
		code = http.StatusForbidden
	case r.Method != http.MethodGet:
		var err error
		if s.lease, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("reading the Lease: %w", err)
		}
		body = s.lease
	case s.lease == nil:
		code, body = http.StatusNotFound, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	default:
		body = s.lease
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

func (s *leaseServer) set(rejects bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejects = rejects
}

// A short outage does not end the term, even if an API server asks to wait for longer than the Lease
// lasts.
func TestHiccupWithRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		config := &rest.Config{Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		e, err := New(config, Options{Namespace: "n", Name: "l", Identity: "a", Log: logr.Discard(), OnLoss: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leads, ended := false, make(chan error, 1)
		go func() {
			ended <- e.Lead(ctx, func(ctx context.Context, _ bool) error {
				leads = true
				<-ctx.Done()
				return nil
			})
		}()
		if pass(10 * time.Second); !leads {
			t.Fatal("the replica does not lead")
		}
		for i := range 20 {
			s.set(true)
			pass(time.Second)
			s.set(false)
			pass(time.Second + time.Duration(i)*30*time.Millisecond) // outages begin at any time since a renewal
			if len(ended) > 0 {
				t.Fatalf("the term ended in outage %d: %v", i+1, <-ended)
			}
		}
	})
}
