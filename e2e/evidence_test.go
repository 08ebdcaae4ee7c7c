// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The kubelet's loops for pod status and node status are independent: either may report
// first.
func TestRebootCloses(t *testing.T) {
	t.Run("node status first", func(t *testing.T) {
		e := newEnv(t)
		e.startController(0)
		k, pod := e.openNode("n1", e.agent())
		k.reboot()
		k.becomes("agent", isClosed, keyA)
		k.recordsBoot("agent")
		e.settled()
		e.must(k.is("agent", isClosed, keyA)) // the pod's status is still Ready
		k.run(pod, false)
		k.run(pod, true)
		k.becomes("agent", isOpen, keyA)
	})
	t.Run("pod status first", func(t *testing.T) {
		e := newEnv(t)
		e.startController(0)
		ds := e.agent()
		k, pod := e.openNode("n1", ds)
		k.run(pod, true)
		e.podsObserved(ds)
		k.reboot()
		k.becomes("agent", isClosed, keyA)
		k.recordsBoot("agent")
		e.settled()
		e.must(k.is("agent", isClosed, keyA)) // the containers may be from the old boot
	})
}

// After an unobserved reboot, the gate closes as soon as the API reports that the daemon is
// not ready.
func TestRebootWhileControllerIsDown(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.agent()
	k, pod := e.openNode("n1", ds)
	stop()
	k.reboot()
	e.startController(0)
	e.podsObserved(ds)
	e.settled()
	e.must(k.is("agent", isOpen, keyA)) // according to the API, the daemon is ready
	k.run(pod, false)
	k.becomes("agent", isClosed, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonRebootedUnobserved {
		t.Errorf("the gate closed because of %s, want %s", r.Reason, v1alpha1.ReasonRebootedUnobserved)
	}
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
}

// After a fleet rebooted while nodegate was down, gates close only on nodes whose daemon is
// not ready, and only as many as the budget allows.
func TestFleetRebootsWhileControllerIsDown(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.agent()
	var kubelets []*kubelet
	var pods []*corev1.Pod
	for i := range 9 { // settled adds a tenth
		k, pod := e.openNode(fmt.Sprintf("n%d", i), ds)
		kubelets, pods = append(kubelets, k), append(pods, pod)
	}
	stop()
	for i, k := range kubelets {
		k.reboot()
		k.run(pods[i], false)
	}
	for i := 6; i < 9; i++ {
		kubelets[i].run(pods[i], true)
	}
	e.startController(0)
	e.eventually("as many gates close as the budget allows", func() error {
		if n := e.closed("agent", kubelets); n != 2 {
			return fmt.Errorf("%d are closed", n)
		}
		return nil
	})
	e.settled()
	if n := e.closed("agent", kubelets); n != 2 {
		t.Errorf("the gate is closed on %d of 9 nodes, and the budget is 20%%", n)
	}
}

func TestOldEvidenceCountsAfterAMinuteOfReports(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	k, _ := e.openNode("n1", e.agent())
	k.reboot()
	k.becomes("agent", isClosed, keyA)
	stop()
	e.startController(2 * time.Minute)
	k.becomes("agent", isOpen, keyA)
}

func TestSilenceClosesAndReturnOpens(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	k, _ := e.openNode("n1", e.agent())

	k.becomeUnreachable()
	k.becomes("agent", isClosed, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonNodeSilent {
		t.Errorf("the gate closed because of %s, want %s", r.Reason, v1alpha1.ReasonNodeSilent)
	}
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isOpen, keyA) // immediately, because the boot is the same
}

func TestAnnouncedShutdownCloses(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	k, pod := e.openNode("n1", e.agent())

	k.report(corev1.ConditionFalse, "node is shutting down")
	k.becomes("agent", isClosed, keyA)
	k.becomeUnreachable()
	k.reboot()
	k.recordsBoot("agent")
	e.settled()
	e.must(k.is("agent", isClosed, keyA))
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
}

func TestNodeRecreatedUnderItsName(t *testing.T) {
	for name, sameMachine := range map[string]bool{"the same machine": true, "another machine": false} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			stop := e.startController(0)
			ds := e.agent()
			k, pod := e.openNode("n1", ds)

			e.must(e.admin.Delete(t.Context(), k.node()))
			e.waitNextSecond() // creation times have whole seconds
			if !sameMachine {
				k = e.kubelet("n1")
			}
			k.register()
			e.must(k.is("agent", isClosed, keyA))
			e.waitsFor("agent", "n1", v1alpha1.ReadingStaleEvidence) // the pod is older than the Node
			e.settled()
			e.must(k.is("agent", isClosed, keyA))

			if sameMachine {
				// The pod keeps running. It counts when the Node has been Ready for a minute.
				stop()
				e.startController(2 * time.Minute)
			} else {
				e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
				k.run(k.daemonPod(ds), true)
			}
			k.becomes("agent", isOpen, keyA)
		})
	}
}

func TestPodsThatDoNotCount(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"a mirror pod": func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			p.OwnerReferences = nil
		},
		"a pod without owner":    func(p *corev1.Pod) { p.OwnerReferences = nil },
		"a pod of another owner": func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another-owner" },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.agent()
			k := e.kubelet("n1")
			k.register()
			k.run(k.daemonPod(ds, change), true)
			e.podsObserved(ds)
			e.settled()
			e.must(k.is("agent", isClosed, keyA))
			k.run(k.daemonPod(ds), true)
			k.becomes("agent", isOpen, keyA)
		})
	}
}

func TestTerminatingPodDoesNotCount(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.agent()
	stop()
	k := e.kubelet("n1")
	k.register()
	pod := k.daemonPod(ds, func(p *corev1.Pod) { p.Finalizers = []string{"test.nodegate.dev/hold"} })
	k.run(pod, true)
	e.must(e.admin.Delete(t.Context(), pod))
	t.Cleanup(func() {
		release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		e.must(e.admin.Patch(context.Background(), pod, release)) // the test's own context has ended
	})
	e.startController(0)
	e.waitsFor("agent", "n1", v1alpha1.ReadingPodTerminating)
	e.must(k.is("agent", isClosed, keyA))
}

func TestStaleRecordsAreIgnored(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	// The birth policy would remove the records.
	e.must(e.admin.Delete(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nodegate-birth"}}))
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	k := e.kubelet("n1")
	e.eventually("a Node is created with the records of an earlier Node, as from a backup", func() error {
		node := k.newNode()
		node.Annotations = map[string]string{
			v1alpha1.RecordAnnotationPrefix + "agent": `{"state":"Open","since":"2020-01-01T00:00:00Z","reason":"SignalsHold","source":"crd"}`,
			v1alpha1.RecordAnnotationPrefix + "other": `{"state":"Closed","since":"2020-01-01T00:00:00Z","taint":"` + keyB + `:NoSchedule","source":"crd"}`,
		}
		e.must(e.admin.Create(t.Context(), node))
		if _, present := node.Annotations[v1alpha1.RecordAnnotationPrefix+"other"]; !present {
			e.must(e.admin.Delete(t.Context(), node))
			return errNotYet
		}
		return nil
	})
	k.becomes("agent", isClosed, keyA)
	e.eventually("the record of a gate that does not exist is removed", func() error {
		_, present := k.node().Annotations[v1alpha1.RecordAnnotationPrefix+"other"]
		return unless(!present)
	})
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
}

func TestRegressionClosesUnderTheBudget(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	e.declare(onRegression(newGate("agent", keyA, byDaemonSet("agent"))))

	var fleet []*kubelet
	var pods []*corev1.Pod
	for i := range 5 {
		k, pod := e.openNode(fmt.Sprintf("n%d", i), ds)
		fleet, pods = append(fleet, k), append(pods, pod)
	}
	for i, k := range fleet {
		k.run(pods[i], false)
	}
	e.eventually("a node is closed, and closing is throttled", func() error {
		if e.closed("agent", fleet) == 0 {
			return errNotYet
		}
		return e.condition("agent", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "")
	})
	if n := e.closed("agent", fleet); n != 1 {
		t.Errorf("the gate is closed on %d of 5 nodes, and the budget is 20%%", n)
	}
	for i, k := range fleet {
		k.run(pods[i], true)
	}
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}
	e.eventually("closing is no longer throttled", func() error {
		return unless(e.condition("agent", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "") != nil)
	})
}
