// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// settled waits until the controller has processed all earlier changes: it opens a gate on
// a separate node.
func (e *env) settled() {
	e.Helper()
	fence := e.kubelet("fence")
	fence.register(func(n *corev1.Node) { n.Labels["fence"] = "" })
	e.must(e.admin.Create(e.Context(), fenceGate()))
	fence.becomes("fence", isOpen, keyB)
	e.must(e.admin.Delete(e.Context(), fence.node()))
	e.must(e.admin.Delete(e.Context(), fenceGate()))
	e.eventually("the fence is gone", func() error {
		if _, there := e.closedAtBirth()["fence"]; there {
			return errNotYet
		}
		return nil
	})
}

func fenceGate() *v1alpha1.NodeGate {
	ng := newGate("fence", keyB, byLabel("fence"))
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"fence": ""}
	ng.Spec.ExistingNodes = v1alpha1.ExistingAdopt
	return ng
}

func TestRebootCloses(t *testing.T) {
	// The kubelet's two loops are independent: either may report first.
	for name, podFirst := range map[string]bool{"node status first": false, "pod status first": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.agent()
			k, pod := e.openNode("n1", ds)

			if podFirst {
				k.run(pod, true)
				k.reboot()
				k.becomes("agent", isClosed, keyA)
				e.settled()
				e.must(k.is("agent", isClosed, keyA)) // perhaps from the old boot
				return
			}
			k.reboot()
			k.becomes("agent", isClosed, keyA)
			e.settled()
			e.must(k.is("agent", isClosed, keyA)) // the pod still looks ready
			k.run(pod, false)
			k.run(pod, true)
			k.becomes("agent", isOpen, keyA)
		})
	}
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
	e.settled()
	e.must(k.is("agent", isOpen, keyA)) // by what the API says, all is well
	k.run(pod, false)
	k.becomes("agent", isClosed, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonRebootedUnobserved {
		t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonRebootedUnobserved)
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
	for i := range 9 { // and one more, by which it is known to have settled
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
	e.eventually("as many close as the budget allows", func() error {
		if n := e.closed("agent", kubelets); n != 2 {
			return fmt.Errorf("%d are closed", n)
		}
		return nil
	})
	e.settled()
	if n := e.closed("agent", kubelets); n != 2 {
		t.Errorf("%d of 9 nodes are closed, and the budget is 20%%", n)
	}
}

// closed counts the nodes on which the gate is closed.
func (e *env) closed(gateName string, kubelets []*kubelet) (n int) {
	e.Helper()
	for _, k := range kubelets {
		if k.record(gateName).State == v1alpha1.StateClosed {
			n++
		}
	}
	return n
}

func TestOldEvidenceCountsAfterAMinuteOfReports(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.agent()
	k, _ := e.openNode("n1", ds)
	k.reboot()
	k.becomes("agent", isClosed, keyA)
	stop()
	e.startController(2 * time.Minute)
	k.becomes("agent", isOpen, keyA)
}

func TestSilenceClosesAndReturnOpens(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k, _ := e.openNode("n1", ds)

	k.becomeUnreachable()
	k.becomes("agent", isClosed, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonNodeSilent {
		t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonNodeSilent)
	}
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isOpen, keyA) // the same boot: at once
}

func TestAnnouncedShutdownCloses(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k, pod := e.openNode("n1", ds)

	k.report(corev1.ConditionFalse, "node is shutting down")
	k.becomes("agent", isClosed, keyA)
	k.becomeUnreachable()
	k.reboot()
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
			e.settled()
			e.must(k.is("agent", isClosed, keyA)) // the pod is older than the Node

			if sameMachine {
				// The pod lives on: it counts when the Node has reported for a minute.
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

// waitNextSecond waits until the clock shows another second.
func (e *env) waitNextSecond() {
	e.Helper()
	now := time.Now().Unix()
	e.eventually("the next second", func() error {
		if time.Now().Unix() == now {
			return errNotYet
		}
		return nil
	})
}

func TestPodsThatDoNotCount(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"a mirror pod": func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			p.OwnerReferences = nil
		},
		"a pod of nobody":        func(p *corev1.Pod) { p.OwnerReferences = nil },
		"a pod of another owner": func(p *corev1.Pod) { p.OwnerReferences[0].UID = "somebody-else" },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.agent()
			k := e.kubelet("n1")
			k.register()
			k.run(k.daemonPod(ds, change), true)
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
	e.settled()
	e.must(k.is("agent", isClosed, keyA))
}

func TestStaleRecordsSayNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	// A Node that comes with the records of another life, as from a backup.
	k.register(func(n *corev1.Node) {
		n.Annotations = map[string]string{
			v1alpha1.RecordAnnotationPrefix + "agent": `{"state":"Open","since":"2020-01-01T00:00:00Z","reason":"SignalsHold","source":"crd"}`,
			v1alpha1.RecordAnnotationPrefix + "other": `{"state":"Closed","since":"2020-01-01T00:00:00Z","taint":"` + keyB + `:NoSchedule","source":"crd"}`,
		}
	})
	e.must(k.is("agent", isClosed, keyA))
	e.eventually("the record of a gate that does not exist is dropped", func() error {
		if _, left := k.node().Annotations[v1alpha1.RecordAnnotationPrefix+"other"]; left {
			return errNotYet
		}
		return nil
	})
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
}

func TestRegressionClosesUnderTheBudget(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet("agent"))
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	e.declare(ng)

	var fleet []*kubelet
	var pods []*corev1.Pod
	for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
		k := e.kubelet(name)
		k.register()
		pod := k.daemonPod(ds)
		k.run(pod, true)
		fleet, pods = append(fleet, k), append(pods, pod)
	}
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}
	for i, k := range fleet {
		k.run(pods[i], false)
	}
	closed := func() (n int) {
		for _, k := range fleet {
			if k.is("agent", isClosed, keyA) == nil {
				n++
			}
		}
		return n
	}
	// 20 % of five nodes is one.
	e.eventually("closing is throttled", func() error { return e.condition("agent", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "") })
	if n := closed(); n != 1 {
		t.Errorf("%d nodes are closed, want 1", n)
	}
	for i, k := range fleet {
		k.run(pods[i], true)
	}
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}
	e.eventually("nothing is throttled any more", func() error {
		if e.condition("agent", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "") == nil {
			return errNotYet
		}
		return nil
	})
}
