// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// watchFor counts the states of nodes that match, until the returned function is called. It
// observes all states: if the API server ends the watch because this process reads too
// slowly, the watch is resumed.
func (e *env) watchFor(matches func(*corev1.Node) bool) (stop func() int) {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	w, err := watchtools.NewRetryWatcherWithContext(e.Context(), nodes.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return e.admin.Watch(ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &o})
		},
	})
	e.must(err)
	const last = "last-to-be-watched"
	count := make(chan int, 1)
	go func() {
		n := 0
		for i := range nodes.Items {
			if matches(&nodes.Items[i]) {
				n++
			}
		}
		for event := range w.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			switch {
			case !ok:
				e.Errorf("the watch of nodes failed: %+v", event.Object)
			case node.Name == last:
				count <- n
				return
			case matches(node):
				n++
			}
		}
		if e.Context().Err() == nil {
			e.Error("the watch of nodes ended before all states were observed")
		}
		count <- n
	}()
	return func() int {
		defer w.Stop()
		// Events come in order, so all earlier states are observed before this node.
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: last}}
		e.must(e.admin.Create(e.Context(), node))
		e.must(e.admin.Delete(e.Context(), node))
		return <-count
	}
}

// watchAll checks every observed state of a node until the returned function is called,
// which fails the test if a state was invalid.
func (e *env) watchAll(check func(*corev1.Node) error) (stop func()) {
	e.Helper()
	var mu sync.Mutex
	var invalid []error
	count := e.watchFor(func(n *corev1.Node) bool {
		err := check(n)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			invalid = append(invalid, fmt.Errorf("node %s at %s: %w", n.Name, n.ResourceVersion, err))
		}
		return err != nil
	})
	return func() {
		e.Helper()
		if n := count(); n > 0 {
			e.Errorf("%d states of nodes are invalid:\n%v", n, errors.Join(invalid[:min(n, 5)]...))
		}
	}
}

// ownPrefix is the prefix of all gates' taint keys in these tests.
const ownPrefix = "test.nodegate.dev/"

// agrees checks the invariants of every state of a Node: a gate's taint is present if and
// only if a record shows that the gate is closed, and there are no duplicate taints. Taints
// of other writers have another prefix.
func agrees(n *corev1.Node) error {
	claimed := make(map[string]bool)
	for _, name := range records(n) {
		r, err := gate.ParseRecord(n.Annotations[name])
		if err != nil {
			return fmt.Errorf("record %s: %w", name, err)
		}
		if cmp.Or(r.Override, r.State) == isClosed {
			claimed[r.Taint] = true
		}
	}
	seen := make(map[string]bool)
	for _, t := range n.Spec.Taints {
		id := t.Key + ":" + string(t.Effect)
		if seen[id] {
			return fmt.Errorf("taint %s exists twice: %s", id, keys(n))
		}
		seen[id] = true
		text := gate.TaintText(v1alpha1.TaintOf(t))
		if strings.HasPrefix(t.Key, ownPrefix) && !claimed[text] {
			return fmt.Errorf("no record claims taint %s: %s, %v", text, keys(n), n.Annotations)
		}
		delete(claimed, text)
	}
	if len(claimed) > 0 {
		return fmt.Errorf("records claim taints %v, which are missing: %s", claimed, keys(n))
	}
	return nil
}

func TestAgreementIsChecked(t *testing.T) {
	closed := `{"state":"Closed","taint":"` + keyA + `:NoSchedule"}`
	record := func(raw string) map[string]string {
		return map[string]string{v1alpha1.RecordAnnotationPrefix + "agent": raw}
	}
	taint := corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		annotations map[string]string
		taints      []corev1.Taint
		ok          bool
	}{
		"closed":                 {record(closed), []corev1.Taint{taint}, true},
		"open":                   {record(`{"state":"Open"}`), nil, true},
		"a foreign taint":        {nil, []corev1.Taint{{Key: "foreign"}}, true},
		"a record without taint": {record(closed), nil, false},
		"a taint without record": {nil, []corev1.Taint{taint}, false},
		"an open gate's taint":   {record(`{"state":"Open"}`), []corev1.Taint{taint}, false},
		"overridden closed":      {record(`{"state":"Open","override":"Closed","taint":"` + keyA + `:NoSchedule"}`), []corev1.Taint{taint}, true},
		"overridden open":        {record(`{"state":"Closed","override":"Open","taint":"` + keyA + `:NoSchedule"}`), []corev1.Taint{taint}, false},
		"a duplicate taint":      {record(closed), []corev1.Taint{taint, taint}, false},
		"a damaged record":       {record("?"), nil, false},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: c.taints}}
		n.Annotations = c.annotations
		if err := agrees(n); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
