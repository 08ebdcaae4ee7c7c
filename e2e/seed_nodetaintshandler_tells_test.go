// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The rows of nodetaintshandler's troubleshooting table that nodegate reports.

// "Workloads schedule before init Pod: node missed mutation." That nodes are not
// closed at birth is told before any comes, and each that came is counted and
// logged.
func TestSeedNodetaintshandlerTellsOfNodesThatMissedBirth(t *testing.T) {
	e := newEnv(t)
	told, _ := e.startObserved()
	e.declare(newGate("init", keyA, byLabel("ready")))
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nodegate-birth"}}
	e.must(e.admin.Delete(t.Context(), binding))
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	missed := e.kubelet("missed")
	e.eventually("a node is born open", func() error {
		if hasTaint(missed.register(), keyA) {
			e.must(e.admin.Delete(t.Context(), missed.node()))
			return errNotYet
		}
		return nil
	})
	missed.becomes("init", isClosed, keyA)
	e.eventually("the closing is counted", func() error {
		if n := metric(told.registry, "nodegate_closes_total", "init", string(v1alpha1.ReasonBirth)); n < 1 {
			return fmt.Errorf("counted %v", n)
		}
		return nil
	})
	lines := told.lines(e, "gate closed")
	if len(lines) == 0 || lines[len(lines)-1]["node"] != "missed" || lines[len(lines)-1]["reason"] != string(v1alpha1.ReasonBirth) {
		t.Errorf("log: %v", lines)
	}

	// A change of the gate has it tried anew, without waiting for the minute.
	var ng v1alpha1.NodeGate
	ng.Name = "init"
	e.edit(&ng, func() { ng.Spec.Taint.Value = "wait" })
	e.eventually("the gate says so", func() error {
		return e.condition("init", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonBirthNotProved)
	})
	if n := metric(told.registry, "nodegate_birth_closing_proved", "init"); n != 0 {
		t.Errorf("nodegate_birth_closing_proved is %v", n)
	}
}

// "... or taint removed quickly: add readiness gating in init Pod." That nothing
// probes the daemon is told as long as it is so.
func TestSeedNodetaintshandlerTellsOfDaemonsWithoutProbe(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	e.declare(newGate("init", keyA, byDaemonSet("init")))
	const remark = "the pods of DaemonSet daemons/init have no readinessProbe, so they are ready as soon as they run"
	says := func(want bool) {
		t.Helper()
		e.eventually("the missing probe is told", func() error {
			if m := e.message("init", v1alpha1.ConditionReady); strings.Contains(m, remark) != want {
				return fmt.Errorf("it says %q", m)
			}
			return nil
		})
	}
	says(true)
	e.edit(ds, func() {
		ds.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		}
	})
	says(false)
	e.must(e.condition("init", v1alpha1.ConditionReady, metav1.ConditionTrue, ""))
}

// "Taint never removed: init Pod never reaches Ready." The gate names the node,
// since when, the signal, the pod and what is wrong with it.
func TestSeedNodetaintshandlerTellsWhatANodeWaitsFor(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	ng := newGate("init", keyA, initPods("init", v1alpha1.ReadyByAnnotation))
	ng.Spec.OpenWhen[0].Name = "init"
	e.declare(ng)
	began := time.Now().Truncate(time.Second) // as exact as the API tells times
	k := e.registered("n1")[0]
	says := func(reason v1alpha1.ReadingReason, parts ...string) {
		t.Helper()
		e.waitsFor("init", "n1", reason)
		w := e.waitingMessage("init", "n1")
		for _, part := range parts {
			if !strings.Contains(w.Message, part) {
				t.Errorf("%s: %q does not say %q", reason, w.Message, part)
			}
		}
		if w.Signal != "init" || w.Since.Time.Before(began) {
			t.Errorf("%+v", w)
		}
	}
	says(v1alpha1.ReadingPodMissing, "daemons/(app=init) has no pod on this node")
	pod := k.daemonPod(ds)
	says(v1alpha1.ReadingPodNotAnnotated, pod.Name, "readyAnnotation")
	k.becomeUnreachable()
	says(v1alpha1.ReadingNodeSilent, "unreachable")
}

// "Backfill skipped node." Nodes that were there before the gate are named, with
// what decided that they stay outside.
func TestSeedNodetaintshandlerTellsOfNodesOutside(t *testing.T) {
	e := newEnv(t)
	e.registered("old-1", "old-2", "old-3", "old-4")
	e.waitNextSecond() // creation times have whole seconds
	e.startController(time.Hour)
	e.declare(newGate("init", keyA, byLabel("ready")))
	want := []v1alpha1.NonMembers{{
		Reason: v1alpha1.NonMemberCreatedBeforeGate, Message: "the node was created before the gate, and existingNodes is Ignore",
		Count: 4, Nodes: []string{"old-1", "old-2", "old-3"},
	}}
	e.eventually("the nodes outside are named", func() error {
		var ng v1alpha1.NodeGate
		e.must(e.admin.Get(t.Context(), client.ObjectKey{Name: "init"}, &ng))
		if diff := cmp.Diff(want, ng.Status.NonMembers); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// "Webhook 404, probe failing: the secret is not mounted yet; check logs." What
// nodegate lacks is in the gate's condition and in one line of the log, in the
// API server's words; and it goes on by itself when it gets it.
func TestSeedNodetaintshandlerTellsWhatIsMissing(t *testing.T) {
	e := newEnv(t)
	told, _ := e.startObserved()
	// A controller that cannot observe all from the start waits for that first.
	e.declare(newGate("before", keyB, byLabel("before")))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nodegate"}}
	e.edit(role, func() {
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
	})
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	config, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	own, err := client.New(config, client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	e.eventually("the right to list pods is gone", func() error {
		if err := own.List(t.Context(), &corev1.PodList{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("listing pods: %w", err)
		}
		return nil
	})
	e.must(e.admin.Create(t.Context(), newGate("init", keyA, initPods("init", v1alpha1.ReadyByEither))))
	e.eventually("the gate says so", func() error {
		return e.condition("init", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFeedsNotSynced)
	})
	const feed = "pods in daemons (app=init) with annotation " + readyKey
	e.eventually("it names what cannot be observed, and why", func() error {
		m := e.message("init", v1alpha1.ConditionReady)
		if !strings.Contains(m, "cannot observe "+feed) || !strings.Contains(m, "forbidden") {
			return fmt.Errorf("it says %q", m)
		}
		return nil
	})
	lines := told.lines(e, "cannot observe, retrying")
	if len(lines) != 1 || lines[0]["feed"] != feed || !strings.Contains(fmt.Sprint(lines[0]["error"]), "forbidden") {
		t.Errorf("log: %v", lines)
	}
	e.must(e.apply(t.Context()))
	e.eventually("the gate is Ready", func() error { return e.condition("init", v1alpha1.ConditionReady, metav1.ConditionTrue, "") })
}
