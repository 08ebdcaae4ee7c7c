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

// failover is a database whose machine is switched off.
type failover struct {
	*volumeEnv
	name string
	node *kubelet
	// The times at which each state was first observed.
	off, unknown, tainted, detached, bound, running time.Time
}

// switchOff switches the machine or its network off.
func (f *failover) switchOff() {
	f.power(f.node.name, false)
	f.off = time.Now()
}

func (f *failover) here(machine string) bool      { return machine == f.node.name }
func (f *failover) elsewhere(machine string) bool { return machine != f.node.name }

func (f *failover) pod() (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: f.name + "-0"}}
	return pod, f.admin.Get(f.Context(), client.ObjectKeyFromObject(pod), pod)
}

// isReady verifies the status of the node's Ready condition.
func (f *failover) isReady(want corev1.ConditionStatus) error {
	if c := f.node.readyCondition(); c.Status != want {
		return fmt.Errorf("node %s has Ready=%s", f.node.name, c.Status)
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

// observe records the times of new states. It returns nil when the database runs on another
// machine.
func (f *failover) observe() error {
	now := time.Now()
	record := func(when *time.Time, is bool) {
		if is && when.IsZero() {
			*when = now
		}
	}
	pod, err := f.pod()
	record(&f.tainted, hasTaint(f.node.node(), v1alpha1.TaintOutOfService))
	record(&f.detached, !f.isAttached(f.name, f.node.name))
	record(&f.bound, err == nil && pod.Spec.NodeName != "" && f.elsewhere(pod.Spec.NodeName))
	err = f.runsOn(f.name, f.elsewhere)
	record(&f.running, err == nil)
	if err != nil { // other states are progress, too
		return fmt.Errorf("%w; out of service %t, bound elsewhere %t, detached %t", err, !f.tainted.IsZero(), !f.bound.IsZero(), !f.detached.IsZero())
	}
	return nil
}

// logTimes logs the observed times.
func (f *failover) logTimes() {
	f.Helper()
	after := func(when time.Time) string { return when.Sub(f.off).Round(100 * time.Millisecond).String() }
	f.Logf("%s: times since the last heartbeat: Ready Unknown %s, out of service %s, pod bound elsewhere %s, disk detached %s, running elsewhere %s",
		f.name, after(f.unknown), after(f.tainted), after(f.bound), after(f.detached), after(f.running))
}

// stuck verifies that the disk is still attached to the machine, so that the database cannot run.
func (f *failover) stuck() error {
	if !f.isAttached(f.name, f.node.name) {
		return fmt.Errorf("disk %s is detached", f.name)
	}
	pod, err := f.pod()
	if err == nil && pod.Status.Phase == corev1.PodRunning {
		return fmt.Errorf("pod %s is running on node %s", pod.Name, pod.Spec.NodeName)
	}
	return err
}

// forcedDetach is how long Kubernetes waits before it detaches the disk of a
// deleted pod from a node that does not report that it was unmounted
// (ReconcilerMaxWaitForUnmountDuration in pkg/controller/volume/attachdetach).
const forcedDetach = 6 * time.Minute

// Three databases on a real control plane. The cloud provider reports that the first machine is
// shut down. The second one is only unreachable. The third one is not selected by a gate, and a
// user deletes its pod by force. The first two databases run on other machines, with their
// disks, before the third one's disk is detached.
func TestSeedTainterOutOfServiceFreesTheVolume(t *testing.T) {
	d := newVolumeEnv(t)
	d.startController(0)
	d.declare(spotGate())
	done := d.watchOutOfService()
	off := &failover{volumeEnv: d, name: "off", node: d.startMachine("node-off", "spot", "off")}
	unreachable := &failover{volumeEnv: d, name: "unreachable", node: d.startMachine("node-unreachable", "spot", "unreachable")}
	plain := &failover{volumeEnv: d, name: "plain", node: d.startMachine("node-plain", "plain")}
	all := []*failover{off, unreachable, plain}
	for _, s := range all {
		d.database(s.name, s.name, "steady")
		d.await("database "+s.name+" runs", func() error { return d.runsOn(s.name, s.here) })
	}
	for i := range 5 {
		d.startMachine(fmt.Sprint("steady-", i), "steady")
	}

	for _, s := range all {
		s.node.setCondition("PreemptionNotice", "True")
	}
	off.node.expectInService("preemption notice")
	for _, s := range all {
		s.switchOff()
	}
	for _, s := range all {
		s.unknown = d.await(s.name+" is unreachable", func() error { return s.isReady(corev1.ConditionUnknown) })
	}
	pod, err := plain.pod()
	d.must(err)
	d.must(d.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	deleted := time.Now()
	d.must(d.editTaints(t.Context(), off.node.name, "cloud", func(taints []corev1.Taint) []corev1.Taint {
		return append(taints, corev1.Taint{Key: v1alpha1.TaintCloudShutdown, Effect: corev1.TaintEffectNoSchedule})
	}))
	d.await("both databases run on other machines", func() error { return errors.Join(off.observe(), unreachable.observe()) })
	off.logTimes()
	unreachable.logTimes()
	if waited := unreachable.node.record("spot").Since.Sub(unreachable.node.readyCondition().LastTransitionTime.Time); waited < time.Minute {
		t.Errorf("taken out of service after being unreachable for %s, want at least a minute", waited)
	}
	for _, s := range []*failover{off, unreachable} {
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

	off.switchOn(corev1.ConditionTrue)
	unreachable.switchOn(corev1.ConditionFalse)
	done()
}

// switchOn switches the machine on. The node still has the notice and the cloud provider's
// taint, but is in service immediately, and its database stays on the other machine.
func (f *failover) switchOn(status corev1.ConditionStatus) {
	f.Helper()
	f.power(f.node.name, true)
	f.node.report(status, "")
	reported := time.Now()
	f.node.becomes("spot", isNone, v1alpha1.TaintOutOfService)
	f.Logf("%s: in service %s after Ready became %s", f.name, time.Since(reported).Round(time.Millisecond), status)
	f.must(f.runsOn(f.name, f.elsewhere))
}
