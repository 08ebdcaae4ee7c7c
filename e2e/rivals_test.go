// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// persistently retries an edit for as long as it meets conflicts: each conflict
// means that another writer has made progress.
var persistently = wait.Backoff{Duration: 2 * time.Millisecond, Jitter: 1, Steps: math.MaxInt}

// editTaints is another writer of taints, of the careful kind.
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

func without(taints []corev1.Taint, key string) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range taints {
		if t.Key != key {
			out = append(out, t)
		}
	}
	return out
}

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
			t.Errorf("taint %s was lost; there are %v", last, keys(node))
		}
		if gone := fmt.Sprintf("foreign-%d-%d", w, each-2); hasTaint(node, gone) {
			t.Errorf("taint %s has risen from the dead", gone)
		}
	}
}

func TestWriterThatFightsForTheKey(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()

	remove := func(taints []corev1.Taint) []corev1.Taint { return without(taints, keyA) }
	e.must(e.editTaints(t.Context(), "n1", "rival", remove))
	k.becomes("agent", isClosed, keyA) // put back, once
	e.must(e.editTaints(t.Context(), "n1", "rival", remove))
	e.eventually("the fight is told, and the rival named", func() error {
		var ng v1alpha1.NodeGate
		e.must(e.admin.Get(t.Context(), client.ObjectKey{Name: "agent"}, &ng))
		c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionContended)
		if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "rival") {
			return fmt.Errorf("condition: %s", conditionText(c))
		}
		return nil
	})
	if hasTaint(k.node(), keyA) {
		t.Error("the taint was put back at once although another writer fights for it")
	}
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
}

func TestTaintThatReappearsIsRemoved(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
	// As Karpenter and cloud providers do after registration.
	e.must(e.editTaints(t.Context(), "n1", "late", func(taints []corev1.Taint) []corev1.Taint {
		return append(taints, corev1.Taint{Key: keyA, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}))
	k.becomes("agent", isOpen, keyA)
}

func TestKubeletTaintIsAdopted(t *testing.T) {
	e := newEnv(t)
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: keyA, Value: "other", Effect: corev1.TaintEffectNoSchedule}}
	})
	e.waitNextSecond() // creation times have whole seconds; the node is to be older than the gate
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k.becomes("agent", isClosed, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonAdopted {
		t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonAdopted)
	}
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
}

func TestGatesThatAreNotAccepted(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("elder", keyA, byLabel("ready"))))
	for name, c := range map[string]struct {
		change func(*v1alpha1.NodeGate)
		reason string
	}{
		"a key that is not allowed": {
			change: func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Key = "example.com/mine" },
			reason: v1alpha1.ReasonTaintKeyNotAllowed,
		},
		"a value that differs": {
			change: func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Value = "x" },
			reason: v1alpha1.ReasonTaintConflict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ng := newGate("younger", keyA, byLabel("ready"))
			c.change(ng)
			e.waitNextSecond()
			e.must(e.admin.Create(t.Context(), ng))
			e.eventually("the gate is refused", func() error {
				return e.condition("younger", v1alpha1.ConditionAccepted, metav1.ConditionFalse, c.reason)
			})
			e.must(e.condition("younger", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted))
			told := v1alpha1.ReasonNoBootEvidence
			if c.reason == v1alpha1.ReasonTaintConflict {
				told = c.reason // on both
			}
			e.eventually("the older gate is in force, and tells of a conflict", func() error {
				return e.condition("elder", v1alpha1.ConditionAccepted, metav1.ConditionTrue, told)
			})
			k := e.kubelet("n1")
			born := k.register()
			if slices.ContainsFunc(born.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == ng.Spec.Taint.Key && t.Value == ng.Spec.Taint.Value
			}) {
				t.Errorf("a gate that is not accepted closed a node: %v", keys(born))
			}
			e.must(e.admin.Delete(t.Context(), born))
			e.must(e.admin.Delete(t.Context(), ng))
		})
	}
}

func TestWhatIsWrongWithADaemonIsTold(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("agent", keyA, byDaemonSet("agent"))))
	e.eventually("a missing DaemonSet is told", func() error {
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDaemonSetNotFound)
	})
	ds := e.daemonSet("agent")
	e.eventually("all is well", func() error { return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionTrue, "") })
	e.edit(ds, func() { ds.Spec.Template.Spec.Tolerations = nil })
	e.eventually("the deadlock is told", func() error {
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDaemonDoesNotTolerateGate)
	})

	e.edit(ds, func() {
		ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: keyA, Operator: corev1.TolerationOpExists}}
	})
	e.eventually("all is well again", func() error { return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionTrue, "") })
	var ng v1alpha1.NodeGate
	ng.Name = "agent"
	e.edit(&ng, func() { ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: keyB, Effect: corev1.TaintEffectNoSchedule} })
	e.eventually("the deadlock to come is told", func() error {
		e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(&ng), &ng))
		c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
		return unless(c.Reason == v1alpha1.ReasonDaemonDoesNotTolerateGate && strings.Contains(c.Message, "agent does not tolerate "+keyB+":NoSchedule"))
	})
}

// Valid selectors that select nothing cause a warning.
func TestSelectorsThatSelectNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("nowhere", keyA, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{daemonNamespace}}})
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "none"}
	e.declare(ng)
	e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(ng), ng))
	message := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady).Message
	for _, want := range []string{"nodeSelector selects no node at present", "signal signal: no DaemonSet matches its selector"} {
		if !strings.Contains(message, want) {
			t.Errorf("Ready says %q, want also %q", message, want)
		}
	}
}
