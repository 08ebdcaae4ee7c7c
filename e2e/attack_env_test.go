// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// agrees verifies the invariants of every state of a Node: a gate's taint is present if
// and only if a record shows that the gate is closed, and there are no duplicate taints.
// Foreign taints have another prefix.
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
		slot := t.Key + ":" + string(t.Effect)
		if seen[slot] {
			return fmt.Errorf("taint %s is there twice: %s", slot, keys(n))
		}
		seen[slot] = true
		text := gate.TaintText(v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		if strings.HasPrefix(t.Key, ownPrefix) && !claimed[text] {
			return fmt.Errorf("no record claims taint %s: %s, %v", text, keys(n), n.Annotations)
		}
		delete(claimed, text)
	}
	if len(claimed) > 0 {
		return fmt.Errorf("closed without their taints: %v; there are %s", claimed, keys(n))
	}
	return nil
}

// ownPrefix is the prefix of all gates' taint keys in these tests.
const ownPrefix = "test.nodegate.dev/"

// watchAll verifies every observed state of a node until the returned function is called,
// which fails the test if a state was invalid.
func (e *env) watchAll(check func(*corev1.Node) error) (stop func()) {
	e.Helper()
	var mu sync.Mutex
	var wrong []error
	count := e.watchFor(func(n *corev1.Node) bool {
		err := check(n)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, fmt.Errorf("node %s at %s: %w", n.Name, n.ResourceVersion, err))
		}
		return err != nil
	})
	return func() {
		e.Helper()
		if n := count(); n > 0 {
			e.Errorf("%d states of nodes were seen that must never be:\n%v", n, errors.Join(wrong[:min(n, 5)]...))
		}
	}
}

// label sets a label on the node, as an administrator.
func (k *kubelet) label(key string) {
	k.Helper()
	k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, key))
}

// wrote verifies the number of the controller's writes of the node.
func (k *kubelet) wrote(want int) {
	k.Helper()
	var writes []string
	k.eventually("the audit log tells of the last write of node "+k.name, func() error {
		var complete bool
		if writes, complete = k.loggedWrites(k.name); !complete {
			return errNotYet
		}
		return nil
	})
	if len(writes) != want {
		k.Errorf("nodegate wrote node %s %d times, want %d:\n%s", k.name, len(writes), want, strings.Join(writes, "\n"))
	}
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
		"closed by hand":         {record(`{"state":"Open","override":"Closed","taint":"` + keyA + `:NoSchedule"}`), []corev1.Taint{taint}, true},
		"open by hand":           {record(`{"state":"Closed","override":"Open","taint":"` + keyA + `:NoSchedule"}`), []corev1.Taint{taint}, false},
		"a taint twice":          {record(closed), []corev1.Taint{taint, taint}, false},
		"a damaged record":       {record("?"), nil, false},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: c.taints}}
		n.Annotations = c.annotations
		if err := agrees(n); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
