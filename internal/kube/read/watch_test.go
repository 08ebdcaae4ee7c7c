// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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

// NodeTaints and WatchNodeTaints return the selected Nodes with their records, labels and taints.
func TestNodeTaints(t *testing.T) {
	s := kubetest.Start(t)
	taint := corev1.Taint{Key: "example.com/a", Value: "v", Effect: corev1.TaintEffectNoSchedule}
	for _, name := range []string{"tainted-1", "tainted-2"} {
		s.Node(t, name, func(n *corev1.Node) {
			n.Labels["example.com/tainted"], n.Spec.Taints = "x", []corev1.Taint{taint}
			n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "a": "r"}
		})
	}
	check := func(n *gate.Node) {
		if !slices.Contains(n.Taints, taint) || n.Records["a"] != "r" || n.Labels["example.com/tainted"] != "x" {
			t.Errorf("%s: %+v", n.Name, n)
		}
	}
	selection := NodeSelection{Labels: "example.com/tainted=x"}
	nodes, err := newTestReader(t, s).NodeTaints(t.Context(), selection)
	if err != nil || len(nodes) != 2 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	for _, n := range nodes {
		check(n)
	}
	err = newTestReader(t, s).WatchNodeTaints(t.Context(), selection, func(nodes map[string]*gate.Node, _ string) bool {
		for _, n := range nodes {
			check(n)
		}
		return len(nodes) == 2
	}, func(error) {})
	if err != nil {
		t.Errorf("WatchNodeTaints: %v", err)
	}
}

// WatchNodeTaints reports all Nodes first, and then each change, until the callback
// returns true. A Node that is no longer selected is removed.
func TestWatchNodeTaints(t *testing.T) {
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
	err := newTestReader(t, s).WatchNodeTaints(t.Context(), NodeSelection{Labels: label}, func(nodes map[string]*gate.Node, name string) bool {
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
		t.Errorf("WatchNodeTaints: %v after calls %q", err, calls)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = newTestReader(t, s).WatchNodeTaints(ctx, NodeSelection{Labels: label}, func(map[string]*gate.Node, string) bool { return false }, func(error) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline, WatchNodeTaints returned %v", err)
	}
}

// Failures of the API server are retried. A forbidden request is not.
func TestWatchNodeTaintsRetries(t *testing.T) {
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
	err = r.WatchNodeTaints(t.Context(), NodeSelection{}, func(map[string]*gate.Node, string) bool { return true }, func(err error) { failures <- err })
	if err == nil || err.Error() != "watching nodes: no" {
		t.Errorf("WatchNodeTaints: %v", err)
	}
	if len(failures) != 2 {
		t.Errorf("%d reported failures, want 2", len(failures))
	}
}

// The context's error is returned, and not the cause with which a signal ends it.
func TestWatchNodeTaintsIsInterrupted(t *testing.T) {
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
	err = r.WatchNodeTaints(ctx, NodeSelection{}, func(map[string]*gate.Node, string) bool { return true }, func(error) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("WatchNodeTaints: %v, want %v", err, context.Canceled)
	}
}
