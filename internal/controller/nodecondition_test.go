// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

func publishing(spec *v1alpha1.NodeGateSpec) {
	spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(3600)), Condition: v1alpha1.DeadlineConditionPublish}
}

// published returns the names of the nodes that have the condition of the gate.
func (w *world) published() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range len(w.nodes) {
		name := fmt.Sprintf("n%04d", i)
		n := w.nodes[name]
		if c, exists := n.Condition("deadline.nodegate.dev/gate"); exists && c.Status == "True" {
			names = append(names, name)
		}
	}
	return names
}

// addLate adds nodes on which the gate has been closed since their creation, ten minutes
// ago.
func (w *world) addLate(n int) {
	w.add(n, func(_ int, n *gate.Node) {
		delete(n.Labels, "fit")
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		n.Created = time.Now().Add(-10 * time.Minute)
	})
}

func (w *world) overdueMessage() string {
	c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionOverdue)
	if c == nil {
		return ""
	}
	return c.Message
}

// Ten nodes pass the deadline, and the budget allows the condition on two. When one of
// them opens, it loses the condition and another node gets it. Without the gate, none has
// it.
func TestConditionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", publishing))
		w.addLate(10)
		stop := w.start(logr.Discard(), allowingAllBut(nil))
		controllertest.Pass(50*time.Minute - 2*time.Second)
		if got := w.published(); len(got) > 0 {
			t.Fatalf("before the deadline, the condition is on %v", got)
		}
		controllertest.Pass(10 * time.Second)
		first := w.published()
		if len(first) != 2 || w.closed() != 10 {
			t.Fatalf("the condition is on %v, and %d nodes are closed", first, w.closed())
		}
		for _, want := range []string{"with condition deadline.nodegate.dev/gate: " + strings.Join(first, ", "), "waiting for this condition, because budget.maxReclosed (20%)"} {
			if !strings.Contains(w.overdueMessage(), want) {
				t.Errorf("message %q does not contain %q", w.overdueMessage(), want)
			}
		}
		stop()
		stop = w.start(logr.Discard(), allowingAllBut(nil)) // another leader knows about the conditions
		defer func() { stop() }()
		before := w.written()
		controllertest.Pass(time.Minute)
		if got := w.published(); fmt.Sprint(got) != fmt.Sprint(first) || w.written() != before {
			t.Errorf("after a restart, the condition is on %v, after %d writes", got, w.written()-before)
		}
		w.change(first[0], func(n *gate.Node) { n.Labels = map[string]string{"fit": ""} })
		controllertest.Pass(5 * time.Second)
		if got := w.published(); len(got) != 2 || strings.Contains(fmt.Sprint(got), first[0]) {
			t.Errorf("after %s has opened, the condition is on %v", first[0], got)
		}
		w.setGates(true)
		controllertest.Pass(5 * time.Second)
		if got := w.published(); len(got) > 0 || w.closed() > 0 {
			t.Errorf("without the gate, the condition is on %v", got)
		}
	})
}

// withoutStatus is a writer that lacks the permission to write conditions at times.
type withoutStatus struct {
	*world
	lacking *atomic.Bool
}

// Apply implements write.Applier.
func (w withoutStatus) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	if !d.Changes && len(d.Conditions) > 0 && w.lacking.Load() {
		return nil, fmt.Errorf("patching: %w", write.ErrDenied)
	}
	return w.world.Apply(ctx, n, d)
}

// Without the permission, nothing is written and the gate reports it. Conditions appear
// once it is granted, and are also removed if no gate requires it any longer.
func TestConditionsRequireAPermission(t *testing.T) {
	for _, reviewed := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) { conditionsRequireAPermission(t, reviewed) })
	}
}

// conditionsRequireAPermission deletes the need for the permission some time after it was lost.
func conditionsRequireAPermission(t *testing.T, after time.Duration) {
	var lacking atomic.Bool
	lacking.Store(true)
	w := newWorld(t, controllertest.Gate("gate", publishing))
	w.addLate(1)
	w.writer = withoutStatus{w, &lacking}
	defer w.start(logr.Discard(), allowingAllBut(func(what string) bool { return lacking.Load() && what == "patch nodes/status" }))()
	controllertest.Pass(51 * time.Minute)
	c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonPermissionMissing || !strings.Contains(c.Message, "--node-conditions") {
		t.Fatalf("condition %+v", c)
	}
	if len(w.published()) > 0 || w.written() != 1 {
		t.Fatalf("the condition is on %v after %d writes", w.published(), w.written())
	}
	lacking.Store(false)
	controllertest.Pass(20 * time.Second)
	if len(w.published()) != 1 {
		t.Fatal("no condition although the permission was granted")
	}
	lacking.Store(true)
	controllertest.Pass(after)
	edited := controllertest.Gate("gate")
	edited.Generation++
	w.setGates(true, edited)
	controllertest.Pass(time.Minute)
	reads := w.readCount()
	controllertest.Pass(5 * time.Minute)
	if len(w.published()) != 1 || w.readCount() > reads+5 {
		t.Errorf("the condition is on %v, and the node was reconciled %d times", w.published(), w.readCount()-reads)
	}
	lacking.Store(false)
	controllertest.Pass(20 * time.Second)
	if got := w.published(); len(got) > 0 {
		t.Errorf("the condition remains on %v", got)
	}
}

// A condition of another writer cannot be removed, because the policy rejects it. The gates of the
// node act nevertheless: one whose signal must hold for some minutes opens.
func TestConditionThatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(spec *v1alpha1.NodeGateSpec) {
			publishing(spec)
			spec.Deadline.ReadySeconds = new(int32(36000)) // so there is no reason for the condition
			spec.Timing.OpenAfterSeconds = 300
		}))
		w.add(1, func(_ int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
			n.Conditions = append(n.Conditions, gate.Condition{Type: "deadline.nodegate.dev/gate", Status: "True"})
		})
		w.writer = rejectingStatus{w}
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(time.Minute)
		w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
		controllertest.Pass(299 * time.Second)
		if w.closed() != 1 {
			t.Fatal("the gate opened too early")
		}
		controllertest.Pass(5 * time.Second)
		if w.closed() != 0 {
			t.Error("the gate did not open")
		}
	})
}

// rejectingStatus is a writer whose writes of conditions a policy rejects.
type rejectingStatus struct{ *world }

// Apply implements write.Applier.
func (w rejectingStatus) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	if !d.Changes && len(d.Conditions) > 0 {
		return nil, fmt.Errorf("patching: %w", errors.Join(write.ErrDenied, write.ErrRejected))
	}
	return w.world.Apply(ctx, n, d)
}
