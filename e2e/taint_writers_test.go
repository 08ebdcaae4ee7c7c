// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// persistently retries an edit without limit as long as there are conflicts: each of them
// means that another writer has succeeded.
var persistently = wait.Backoff{Duration: 2 * time.Millisecond, Jitter: 1, Steps: math.MaxInt}

// editTaints edits a node's taints as another field manager, and retries on conflict.
func (e *env) editTaints(ctx context.Context, node, manager string, edit func([]corev1.Taint) []corev1.Taint) error {
	return retry.RetryOnConflict(persistently, func() error {
		var n corev1.Node
		if err := e.admin.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		n.Spec.Taints = edit(n.Spec.Taints)
		return e.admin.Update(ctx, &n, client.FieldOwner(manager))
	})
}

// without returns the taints that do not have the key.
func without(taints []corev1.Taint, key string) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range taints {
		if t.Key != key {
			out = append(out, t)
		}
	}
	return out
}

// While other writers edit a node's taints, gates open, and no edit is lost.
func TestForeignTaintWritersInParallel(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("first", keyA, byLabel("first")))
	e.declare(newGate("second", keyB, byLabel("second")))
	k := e.kubelet("n1")
	k.register()

	const writers, each = 4, 10
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range each {
				taint := corev1.Taint{Key: fmt.Sprintf("foreign-%d-%d", w, i), Effect: corev1.TaintEffectNoSchedule}
				err := e.editTaints(t.Context(), "n1", "writer", func(taints []corev1.Taint) []corev1.Taint {
					return append(without(taints, fmt.Sprintf("foreign-%d-%d", w, i-1)), taint)
				})
				if err != nil {
					t.Errorf("writing taints: %v", err)
					return
				}
			}
		})
	}
	k.patch(`{"metadata":{"labels":{"first":""}}}`)
	k.becomes("first", isOpen, keyA)
	k.patch(`{"metadata":{"labels":{"second":""}}}`)
	running.Wait()
	k.becomes("second", isOpen, keyB)
	node := k.node()
	for w := range writers {
		if last := fmt.Sprintf("foreign-%d-%d", w, each-1); !hasTaint(node, last) {
			t.Errorf("taint %s was lost; the node has %v", last, keys(node))
		}
		if removed := fmt.Sprintf("foreign-%d-%d", w, each-2); hasTaint(node, removed) {
			t.Errorf("taint %s was restored; the node has %v", removed, keys(node))
		}
	}
}

// If another writer removes the taint, the gate restores it once. If the writer removes it
// again, the gate reports the writer and backs off.
func TestWriterThatRemovesTheTaintAgain(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()

	remove := func(taints []corev1.Taint) []corev1.Taint { return without(taints, keyA) }
	began := time.Now() // the gate backs off from when it restores the taint, which follows
	e.must(e.editTaints(t.Context(), "n1", "other-writer", remove))
	k.becomes("agent", isClosed, keyA) // restored once
	e.must(e.editTaints(t.Context(), "n1", "other-writer", remove))
	e.contendedBy("agent", "other-writer")
	if hasTaint(k.node(), keyA) && attempts(began) == 0 {
		t.Error("the taint was restored immediately although it is contended")
	}
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
}

// A taint that another writer adds after the gate has opened is removed.
func TestTaintThatReappearsIsRemoved(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
	// Karpenter and cloud providers do this after registration.
	e.must(e.editTaints(t.Context(), "n1", "late", func(taints []corev1.Taint) []corev1.Taint {
		return append(taints, corev1.Taint{Key: keyA, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}))
	k.becomes("agent", isOpen, keyA)
}

// A gate closes on an older node that the kubelet registered with the gate's taint.
func TestKubeletTaintIsAdopted(t *testing.T) {
	e := newEnv(t)
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: keyA, Value: "other", Effect: corev1.TaintEffectNoSchedule}}
	})
	e.waitNextSecond() // creation times have whole seconds; the node must be older than the gate
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k.becomes("agent", isClosed, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonAdopted {
		t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonAdopted)
	}
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
}
