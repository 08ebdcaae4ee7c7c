// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func (s *server) reader(t *testing.T) *Reader {
	t.Helper()
	r, err := NewReader(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The roster is what the metadata of the selected Nodes tell.
func TestRoster(t *testing.T) {
	s := startServer(t)
	node := s.node(t, "listed", func(n *corev1.Node) {
		n.Labels["example.com/roster"] = "x"
		n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "a": "r", v1alpha1.OverrideAnnotationPrefix + "b": "o", "other": "z"}
	})
	s.node(t, "unlisted")
	for _, selection := range []Selection{{Name: "listed"}, {Labels: "example.com/roster=x"}, {Name: "listed", Labels: "example.com/roster"}} {
		nodes, err := s.reader(t).Roster(t.Context(), selection)
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%+v: %d nodes, %v", selection, len(nodes), err)
		}
		n := nodes[0]
		if n.Name != "listed" || n.UID != node.UID || !n.Created.Equal(node.CreationTimestamp.Time) || n.Labels["example.com/roster"] != "x" || n.Records["a"] != "r" || n.Overrides["b"] != "o" || !n.HasAnnotations {
			t.Errorf("%+v: %+v", selection, n)
		}
	}
}

// Whoever follows is told of all that there are first, and then of each change,
// until enough is heard. A Node that is not selected any more is gone.
func TestFollow(t *testing.T) {
	s := startServer(t)
	const label = "example.com/followed"
	followed := func(n *corev1.Node) { n.Labels[label] = "" }
	s.node(t, "followed-1", followed)
	var told []string
	unfollow := sync.OnceFunc(func() {
		patch := []byte(`{"metadata":{"labels":{"` + label + `":null}}}`)
		if _, err := s.CoreV1().Nodes().Patch(t.Context(), "followed-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	err := s.reader(t).Follow(t.Context(), Selection{Labels: label}, func(nodes map[string]*gate.Node, name string) bool {
		told = append(told, fmt.Sprintf("%s:%d", name, len(nodes)))
		switch {
		case name == "":
			s.node(t, "followed-2", followed)
		case len(nodes) == 2:
			unfollow()
		}
		return nodes["followed-2"] != nil && len(nodes) == 1
	}, func(err error) { t.Error(err) })
	if err != nil || told[0] != ":1" || told[len(told)-1] != "followed-1:1" {
		t.Errorf("it ended with %v, and told %q", err, told)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = s.reader(t).Follow(ctx, Selection{Labels: label}, func(map[string]*gate.Node, string) bool { return false }, func(error) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("when its time was over it ended with %v", err)
	}
}

// An API server that fails for a while is asked again; one that forbids it is not.
func TestFollowOvercomesFailures(t *testing.T) {
	status := http.StatusInternalServerError
	asked := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked > 2 {
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
	err = r.Follow(t.Context(), Selection{}, func(map[string]*gate.Node, string) bool { return true }, func(err error) { failures <- err })
	if err == nil || err.Error() != "watching nodes: no" {
		t.Errorf("it ended with %v", err)
	}
	if len(failures) != 2 {
		t.Errorf("it told of %d failures, want 2", len(failures))
	}
}
