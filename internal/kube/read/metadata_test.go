// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

func newTestReader(t *testing.T, s *kubetest.Server) *Reader {
	t.Helper()
	r, err := NewReader(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// NodeMetadata returns the facts that the metadata of the selected Nodes contain.
func TestNodeMetadata(t *testing.T) {
	s := kubetest.Start(t)
	node := s.Node(t, "listed", func(n *corev1.Node) {
		n.Labels["example.com/roster"] = "x"
		n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "a": "r", v1alpha1.OverrideAnnotationPrefix + "b": "o", "other": "z"}
	})
	s.Node(t, "unlisted")
	for _, selection := range []NodeSelection{{Name: "listed"}, {Labels: "example.com/roster=x"}, {Name: "listed", Labels: "example.com/roster"}} {
		nodes, err := newTestReader(t, s).NodeMetadata(t.Context(), selection)
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%+v: %d nodes, %v", selection, len(nodes), err)
		}
		n := nodes[0]
		if n.Name != "listed" || n.UID != node.UID || !n.Created.Equal(node.CreationTimestamp.Time) || n.Labels["example.com/roster"] != "x" || n.Records["a"] != "r" || n.Overrides["b"] != "o" || !n.HasAnnotations {
			t.Errorf("%+v: %+v", selection, n)
		}
	}
}

// WatchNodeMetadata reports all Nodes first, and then each change, until the callback
// returns true. A Node that is no longer selected is removed.
func TestWatchNodeMetadata(t *testing.T) {
	s := kubetest.Start(t)
	const label = "example.com/followed"
	selected := func(n *corev1.Node) { n.Labels[label] = "" }
	s.Node(t, "followed-1", selected)
	var calls []string
	var succeeded atomic.Bool
	unselect := sync.OnceFunc(func() {
		patch := []byte(`{"metadata":{"labels":{"` + label + `":null}}}`)
		if _, err := s.CoreV1().Nodes().Patch(t.Context(), "followed-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	err := newTestReader(t, s).WatchNodeMetadata(t.Context(), NodeSelection{Labels: label}, func(nodes map[string]*gate.Node, name string) bool {
		calls = append(calls, fmt.Sprintf("%s:%d", name, len(nodes)))
		switch {
		case name == "":
			s.Node(t, "followed-2", selected)
		case len(nodes) == 2:
			unselect()
		}
		return nodes["followed-2"] != nil && len(nodes) == 1
	}, func(err error) {
		if succeeded.Store(true); err != nil {
			t.Error(err)
		}
	})
	if !succeeded.Load() {
		t.Error("the success of requests was not reported")
	}
	if err != nil || calls[0] != ":1" || calls[len(calls)-1] != "followed-1:1" {
		t.Errorf("WatchNodeMetadata: %v after calls %q", err, calls)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = newTestReader(t, s).WatchNodeMetadata(ctx, NodeSelection{Labels: label}, func(map[string]*gate.Node, string) bool { return false }, func(error) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline, WatchNodeMetadata returned %v", err)
	}
}

// Failures of the API server are retried. A forbidden request is not.
func TestWatchNodeMetadataRetries(t *testing.T) {
	status := http.StatusInternalServerError
	requests := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests > 2 {
			status = http.StatusForbidden
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, map[int]string{403: "Forbidden", 500: "InternalError"}[status], status)
	}))
	defer api.Close()
	r, err := NewReader(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	failures := make(chan error, 10)
	err = r.WatchNodeMetadata(t.Context(), NodeSelection{}, func(map[string]*gate.Node, string) bool { return true }, func(err error) { failures <- err })
	if err == nil || err.Error() != "watching nodes: no" {
		t.Errorf("WatchNodeMetadata: %v", err)
	}
	if len(failures) != 2 {
		t.Errorf("%d reported failures, want 2", len(failures))
	}
}

// The context's error is returned, and not the cause with which a signal ends it.
func TestWatchNodeMetadataIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel(errors.New("interrupt signal received"))
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer api.Close()
	r, err := NewReader(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = r.WatchNodeMetadata(ctx, NodeSelection{}, func(map[string]*gate.Node, string) bool { return true }, func(error) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("WatchNodeMetadata: %v, want %v", err, context.Canceled)
	}
}
