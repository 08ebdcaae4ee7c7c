// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/testcluster"
)

// server answers requests for empty collections, and records the first watch of each.
type server struct {
	mu    sync.Mutex
	first map[string]url.Values
	both  chan struct{} // closed when nodes and pods are watched
}

func (s *server) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	kind := map[string]string{"nodes": "Node", "pods": "Pod"}[resource]
	out.Header().Set("Content-Type", "application/json")
	if query.Get("watch") == "" {
		fmt.Fprintf(out, `{"kind":"%sList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`, kind)
		return
	}
	if query.Get("sendInitialEvents") == "true" {
		fmt.Fprintf(out, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`, kind)
	}
	_ = http.NewResponseController(out).Flush()
	s.mu.Lock()
	if s.first[resource] == nil {
		if s.first[resource] = query; len(s.first) == 2 {
			close(s.both)
		}
	}
	s.mu.Unlock()
	<-r.Context().Done()
}

// The limit watches like nodegate: its watches begin with all existing objects, so the API
// server compresses them.
func TestWatchesBeginWithExistingObjects(t *testing.T) {
	s := &server{first: map[string]url.Values{}, both: make(chan struct{})}
	api := httptest.NewServer(s)
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, &rest.Config{Host: api.URL}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Run(ctx, kubeconfig, Watches) }()
	select {
	case <-s.both:
	case err := <-ended:
		t.Fatalf("the limit ended: %v", err)
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range []string{"nodes", "pods"} {
		if got := s.first[resource].Get("sendInitialEvents"); got != "true" {
			t.Errorf("the watch of %s has sendInitialEvents %q, want true", resource, got)
		}
	}
}
