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

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The rows of nodetaintshandler's troubleshooting table, whose problems nodegate reports.

// "Workloads schedule before init Pod: node missed mutation." The gate reports that it is not
// closed at birth before a node is created, and each missed node is counted and logged.
func TestSeedNodetaintshandlerTellsOfNodesThatMissedBirth(t *testing.T) {
	e := newEnv(t)
	told, _ := e.startObserved()
	e.declare(newGate("init", keyA, byLabel("ready")))
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nodegate-birth"}}
	e.must(e.admin.Delete(t.Context(), binding))
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	missed := e.kubelet("missed")
	e.eventually("a node is created without the taint", func() error {
		if hasTaint(missed.register(), keyA) {
			e.must(e.admin.Delete(t.Context(), missed.node()))
			return errNotYet
		}
		return nil
	})
	missed.becomes("init", isClosed, keyA)
	e.eventually("the closing is counted and logged", func() error {
		if n := metric(told.registry, "nodegate_closes_total", "init", string(v1alpha1.ReasonBirth)); n < 1 {
			return fmt.Errorf("counted %v", n)
		}
		lines := told.lines(e, "gate closed")
		if len(lines) == 0 || lines[len(lines)-1]["node"] != "missed" || lines[len(lines)-1]["reason"] != string(v1alpha1.ReasonBirth) {
			return fmt.Errorf("log: %v", lines)
		}
		return nil
	})

	// Editing the gate causes a new proof immediately, and not after a minute.
	var ng v1alpha1.NodeGate
	ng.Name = "init"
	e.edit(&ng, func() { ng.Spec.Taint.Value = "wait" })
	e.eventually("the gate reports that closing at birth is not proved", func() error {
		return e.condition("init", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonBirthNotProved)
	})
	e.shows(told.registry, "nodegate_birth_closing_proved", 0, "init")
}

// "... or taint removed quickly: add readiness gating in init Pod." The gate reports a daemon
// without readiness probe.
func TestSeedNodetaintshandlerTellsOfDaemonsWithoutProbe(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	e.declare(newGate("init", keyA, byDaemonSet("init")))
	const remark = "the pods of DaemonSet daemons/init have no readinessProbe, so they are ready as soon as they run"
	reports := func(want bool) {
		t.Helper()
		e.eventually(fmt.Sprintf("the gate reports the missing probe: %t", want), func() error {
			if m := e.message("init", v1alpha1.ConditionReady); strings.Contains(m, remark) != want {
				return fmt.Errorf("message: %q", m)
			}
			return nil
		})
	}
	reports(true)
	e.edit(ds, func() {
		ds.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		}
	})
	reports(false)
	e.must(e.condition("init", v1alpha1.ConditionReady, metav1.ConditionTrue, ""))
}

// "Taint never removed: init Pod never reaches Ready." The gate's status names the node, since
// when the gate is closed, the signal, the pod and its problem.
func TestSeedNodetaintshandlerTellsWhatANodeWaitsFor(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	ng := newGate("init", keyA, initPods("init", v1alpha1.ReadyByAnnotation))
	ng.Spec.OpenWhen[0].Name = "init"
	e.declare(ng)
	began := time.Now().Truncate(time.Second) // times in the API have whole seconds
	k := e.registered("n1")[0]
	waits := func(reason v1alpha1.ReadingReason, parts ...string) {
		t.Helper()
		e.waitsFor("init", "n1", reason)
		w := e.waitingMessage("init", "n1")
		for _, part := range parts {
			if !strings.Contains(w.Message, part) {
				t.Errorf("%s: the message is %q, want %q in it", reason, w.Message, part)
			}
		}
		if w.Signal != "init" || w.Since.Time.Before(began) {
			t.Errorf("waiting: %+v, want signal init, since %s at the earliest", w, began)
		}
	}
	waits(v1alpha1.ReadingPodMissing, "daemons/(app=init) has no pod on this node")
	pod := k.daemonPod(ds)
	waits(v1alpha1.ReadingPodNotAnnotated, pod.Name, "readyAnnotation")
	k.becomeUnreachable()
	waits(v1alpha1.ReadingNodeSilent, "unreachable")
}

// "Backfill skipped node." The gate's status names existing nodes that are not members, with the
// reason.
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
	e.eventually("the status names the nodes", func() error {
		if diff := cmp.Diff(want, e.readGate("init").Status.NonMembers); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// "Webhook 404, probe failing: the secret is not mounted yet; check logs." A missing permission
// is reported in the gate's condition and in one log line, with the API server's message. When
// it is granted, nodegate continues without a restart.
func TestSeedNodetaintshandlerTellsWhatIsMissing(t *testing.T) {
	e := newEnv(t)
	told, _ := e.startObserved()
	// Until all feeds have synced once, a new controller reconciles nothing.
	e.declare(newGate("before", keyB, byLabel("before")))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nodegate"}}
	e.edit(role, func() {
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
	})
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	own, err := e.controllerClient(t.Context())
	e.must(err)
	e.eventually("the controller may not list pods", func() error {
		if err := own.List(t.Context(), &corev1.PodList{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("listing pods: %w", err)
		}
		return nil
	})
	e.must(e.admin.Create(t.Context(), newGate("init", keyA, initPods("init", v1alpha1.ReadyByEither))))
	e.eventually("the gate reports that a feed is not synced", func() error {
		return e.condition("init", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFeedsNotSynced)
	})
	const feed = "pods in daemons (app=init) with annotation " + readyKey
	e.eventually("the message names the feed and the error", func() error {
		m := e.message("init", v1alpha1.ConditionReady)
		if !strings.Contains(m, "cannot observe "+feed) || !strings.Contains(m, "forbidden") {
			return fmt.Errorf("message: %q", m)
		}
		return nil
	})
	e.eventually("the error is logged once", func() error {
		lines := told.lines(e, "cannot observe, retrying")
		if len(lines) != 1 || lines[0]["feed"] != feed || !strings.Contains(fmt.Sprint(lines[0]["error"]), "forbidden") {
			return fmt.Errorf("log: %v", lines)
		}
		return nil
	})
	e.must(e.apply(t.Context()))
	e.inForce("init")
}
