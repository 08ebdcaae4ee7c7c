// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// story is that of a database on a machine that goes.
type story struct {
	*volumeEnv
	name string
	node *kubelet
	// When what was first seen.
	silent, unknown, tainted, detached, bound, running time.Time
}

// goes ends the machine's life, or cuts its network.
func (s *story) goes() {
	s.power(s.node.name, false)
	s.silent = time.Now()
}

func (s *story) here(machine string) bool      { return machine == s.node.name }
func (s *story) elsewhere(machine string) bool { return machine != s.node.name }

func (s *story) pod() (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: s.name + "-0"}}
	return pod, s.admin.Get(s.Context(), client.ObjectKeyFromObject(pod), pod)
}

// isReady checks the node's Ready condition.
func (s *story) isReady(want corev1.ConditionStatus) error {
	if c := s.node.readyCondition(); c.Status != want {
		return fmt.Errorf("node %s has Ready=%s", s.node.name, c.Status)
	}
	return nil
}

func (k *kubelet) readyCondition() corev1.NodeCondition {
	k.Helper()
	for _, c := range k.node().Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// observe notes what has come to pass. It returns nil when the database runs
// elsewhere.
func (s *story) observe() error {
	now := time.Now()
	note := func(when *time.Time, is bool) {
		if is && when.IsZero() {
			*when = now
		}
	}
	pod, err := s.pod()
	note(&s.tainted, hasTaint(s.node.node(), v1alpha1.TaintOutOfService))
	note(&s.detached, !s.isAttached(s.name, s.node.name))
	note(&s.bound, err == nil && pod.Spec.NodeName != "" && s.elsewhere(pod.Spec.NodeName))
	err = s.runsOn(s.name, s.elsewhere)
	note(&s.running, err == nil)
	if err != nil { // what has come to pass is progress, also while the pod is as it was
		return fmt.Errorf("%w; out of service %t, bound elsewhere %t, detached %t", err, !s.tainted.IsZero(), !s.bound.IsZero(), !s.detached.IsZero())
	}
	return nil
}

func (s *story) tell() {
	s.Helper()
	after := func(when time.Time) string { return when.Sub(s.silent).Round(100 * time.Millisecond).String() }
	s.Logf("%s: seconds since the last heartbeat: Ready Unknown %s, out of service %s, pod bound elsewhere %s, disk detached %s, running elsewhere %s",
		s.name, after(s.unknown), after(s.tainted), after(s.bound), after(s.detached), after(s.running))
}

// stuck checks that the disk is still where nobody can use it.
func (s *story) stuck() error {
	if !s.isAttached(s.name, s.node.name) {
		return fmt.Errorf("disk %s is detached", s.name)
	}
	pod, err := s.pod()
	if err == nil && pod.Status.Phase == corev1.PodRunning {
		return fmt.Errorf("pod %s is running on node %s", pod.Name, pod.Spec.NodeName)
	}
	return err
}

// forcedDetach is how long Kubernetes waits before it detaches the disk of a
// deleted pod from a node that does not report that it was unmounted
// (ReconcilerMaxWaitForUnmountDuration in pkg/controller/volume/attachdetach).
const forcedDetach = 6 * time.Minute

// The whole story on a real control plane, three times: once the cloud says that
// the machine is off, once silence has to do, and once no gate looks after the
// node and a person has deleted the pod by force. The first two run elsewhere
// with their disks before the third's disk is detached.
func TestSeedTainterOutOfServiceFreesTheVolume(t *testing.T) {
	d := newVolumeEnv(t)
	d.startController(0)
	d.declare(spotGate())
	watched := d.neverTakenWhileSpeaking()
	off := &story{volumeEnv: d, name: "off", node: d.startMachine("node-off", "spot", "off")}
	silent := &story{volumeEnv: d, name: "silent", node: d.startMachine("node-silent", "spot", "silent")}
	plain := &story{volumeEnv: d, name: "plain", node: d.startMachine("node-plain", "plain")}
	all := []*story{off, silent, plain}
	for _, s := range all {
		d.database(s.name, s.name, "steady")
		d.await("database "+s.name+" runs", func() error { return d.runsOn(s.name, s.here) })
	}
	for i := range 5 {
		d.startMachine(fmt.Sprint("steady-", i), "steady")
	}

	for _, s := range all { // the notice arms
		s.node.has("PreemptionNotice", "True")
	}
	off.node.inService("given notice")
	for _, s := range all { // silence fires
		s.goes()
	}
	for _, s := range all {
		s.unknown = d.await(s.name+" is silent", func() error { return s.isReady(corev1.ConditionUnknown) })
	}
	pod, err := plain.pod()
	d.must(err)
	d.must(d.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	deleted := time.Now()
	d.must(d.editTaints(t.Context(), off.node.name, "cloud", func(taints []corev1.Taint) []corev1.Taint {
		return append(taints, corev1.Taint{Key: v1alpha1.TaintCloudShutdown, Effect: corev1.TaintEffectNoSchedule})
	}))
	d.await("both databases run elsewhere", func() error { return errors.Join(off.observe(), silent.observe()) })
	off.tell()
	silent.tell()
	if waited := silent.node.record("spot").Since.Sub(silent.node.readyCondition().LastTransitionTime.Time); waited < time.Minute {
		t.Errorf("taken out of service after %s of silence", waited)
	}
	for _, s := range []*story{off, silent} {
		if d.managerLogged("node has out-of-service taint, force detaching", s.node.name) == 0 {
			t.Errorf("the attach-detach controller did not detach by force from %s", s.node.name)
		}
	}
	err = plain.stuck()
	switch waited := time.Since(deleted).Round(time.Second); {
	case waited >= forcedDetach:
		t.Logf("the machine is too slow to compare: without a gate the disk may be detached after %s, and %s have passed", forcedDetach, waited)
	case err != nil:
		t.Errorf("without a gate: %v", err)
	default:
		t.Logf("without a gate the disk is still attached %s after its pod was deleted by force", waited)
	}

	off.comesBack(corev1.ConditionTrue)
	silent.comesBack(corev1.ConditionFalse)
	watched()
}

// comesBack has the machine speak again, with notice and the cloud's word still
// on the node. It is in service at once, and its database stays where it is.
func (s *story) comesBack(status corev1.ConditionStatus) {
	s.Helper()
	s.power(s.node.name, true)
	s.node.report(status, "")
	spoke := time.Now()
	s.node.becomes("spot", isNone, v1alpha1.TaintOutOfService)
	s.Logf("%s: in service %s after Ready became %s", s.name, time.Since(spoke).Round(time.Millisecond), status)
	s.must(s.runsOn(s.name, s.elsewhere))
}
