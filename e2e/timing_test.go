// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The agent must have been ready for an hour. A restart of the controller makes no
// difference, because the API contains the transition time.
func TestSoak(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet(ds.Name))
	ng.Spec.Timing.OpenAfterSeconds = 3600
	e.declare(ng)
	k := e.registered("n1")[0]
	e.waitsFor("agent", "n1", v1alpha1.ReadingPodMissing)
	k.run(k.daemonPod(ds), true)
	k.opensAfterAnHour("agent", v1alpha1.ReadingOpenAfter, stop)
}

// opensAfterAnHour verifies that a gate waits for this reason and opens after an hour, and
// that a restart of the controller makes no difference. stop stops the first controller.
func (k *kubelet) opensAfterAnHour(gateName string, reason v1alpha1.ReadingReason, stop func()) {
	k.Helper()
	k.waitsFor(gateName, k.name, reason)
	stop()
	_, stop = k.startReconciled(30*time.Minute, gateName, 1)
	k.must(k.is(gateName, isClosed, keyA))
	k.waitsFor(gateName, k.name, reason)
	stop()
	k.wrote(0) // the time is not stored on the node
	k.startController(61 * time.Minute)
	k.becomes(gateName, isOpen, keyA)
	k.wrote(1)
}

// A closeWhen gate opens some seconds after its condition has cleared, without an event.
func TestSoakOfACloseWhenGate(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("bad", keyA, v1alpha1.SignalSource{Annotation: &v1alpha1.KeyValueSignal{Key: "example.com/bad"}})
	ng.Spec.CloseWhen, ng.Spec.OpenWhen = ng.Spec.OpenWhen, nil
	ng.Spec.Timing.OpenAfterSeconds = 3
	e.declare(ng)
	k := e.registered("n1")[0]
	k.patch(`{"metadata":{"annotations":{"example.com/bad":"yes"}}}`)
	k.becomes("bad", isClosed, keyA)
	cleared := time.Now()
	k.patch(`{"metadata":{"annotations":{"example.com/bad":null}}}`)
	k.becomes("bad", isNone, keyA)
	if passed := time.Since(cleared); passed < 3*time.Second {
		t.Errorf("the gate opened %s after its condition had cleared, want at least 3 s", passed)
	}
}

// The agent's pod must have been ready for an hour. A restart of the controller makes no
// difference.
func TestMinReadySeconds(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("agent")
	e.declare(newGate("agent", keyA, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{
		Namespace: daemonNamespace, Name: ds.Name, MinReadySeconds: 3600,
	}}))
	k := e.registered("n1")[0]
	k.run(k.daemonPod(ds), true)
	k.opensAfterAnHour("agent", v1alpha1.ReadingPodReadyTooBriefly, stop)
}

// A missed deadline is reported by the condition, the counts and one Event, also after a
// restart, until the agent is ready.
func TestDeadlineKeepsClosed(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet(ds.Name))
	ng.Spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(3))}
	e.declare(ng)
	k := e.registered("n1")[0]
	pod := k.daemonPod(ds)
	k.run(pod, false)
	e.eventually("the deadline has passed", func() error { return k.overdue("agent") })
	k.deadlineEvents(1, "stays closed")
	stop()
	metrics, _ := e.startReconciled(0, "agent", 1)
	e.shows(metrics, "nodegate_gate_nodes", 1, "agent", "overdue")
	e.eventually("the gate reports the deadline", func() error { return k.overdue("agent") })
	e.must(k.is("agent", isClosed, keyA))
	k.deadlineEvents(1, "stays closed")
	k.wrote(1)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	e.eventually("nothing is overdue", func() error { return unless(k.overdue("agent") != nil) })
}

// A deadline opens a gate because of a missing pod. The gate stays open until the agent has
// been ready once or the node reboots.
func TestDeadlineOpens(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet(ds.Name))
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = new(int32(0))
	ng.Spec.Budget.MaxReclosed = percent("100%")
	ng.Spec.Deadline = &v1alpha1.Deadline{PodMissingSeconds: new(int32(6000)), Action: v1alpha1.DeadlineOpen}
	e.declare(ng)
	k := e.registered("n1")[0]
	e.waitsFor("agent", "n1", v1alpha1.ReadingPodMissing)
	stop()
	_, stop = e.startReconciled(90*time.Minute, "agent", 1)
	e.must(k.is("agent", isClosed, keyA))
	stop()
	k.wrote(0)
	stop = e.startController(110 * time.Minute)
	k.becomes("agent", isOpen, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonDeadlinePassed {
		t.Errorf("opened for %s, want %s", r.Reason, v1alpha1.ReasonDeadlinePassed)
	}
	k.deadlineEvents(1, "opens")
	e.settled()
	e.must(k.is("agent", isOpen, keyA))
	stop()
	e.startReconciled(0, "agent", 1)
	k.reboot()
	k.becomes("agent", isClosed, keyA)
	k.recordsBoot("agent")
	k.run(k.daemonPod(ds), true)
	k.becomes("agent", isOpen, keyA)
	if r := k.record("agent"); r.Reason != v1alpha1.ReasonSignalsHold {
		t.Errorf("opened for %s, want %s", r.Reason, v1alpha1.ReasonSignalsHold)
	}
	k.deadlineEvents(1, "opens")
}

// overdue verifies that a gate reports exactly this node as overdue.
func (k *kubelet) overdue(gateName string) error {
	k.Helper()
	if err := k.condition(gateName, v1alpha1.ConditionOverdue, metav1.ConditionTrue, v1alpha1.ReasonOverdue); err != nil {
		return err
	}
	if n := k.readGate(gateName).Status.Nodes; n.Overdue != 1 {
		return fmt.Errorf("counts: %+v", n)
	}
	return nil
}

// deadlineEvents waits until there are this many Events about the node's deadline, which must
// all have this text.
func (k *kubelet) deadlineEvents(want int, text string) {
	k.Helper()
	k.eventually(fmt.Sprintf("there are %d Events about the deadline", want), func() error {
		all := k.nodeEvents(v1alpha1.EventDeadlinePassed)
		for _, event := range all {
			if !strings.Contains(event.Note, text) {
				return fmt.Errorf("the note is %q, want %q in it", event.Note, text)
			}
		}
		if len(all) != want {
			return fmt.Errorf("there are %d Events", len(all))
		}
		return nil
	})
}

// Neither a daemon that crashes repeatedly, nor the replacement of its pod, nor a restart of
// nodegate moves the gate's deadline.
func TestDeadlineOfACrashLoop(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet(ds.Name))
	ng.Spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(6000)), PodMissingSeconds: new(int32(300))}
	e.declare(ng)
	k := e.registered("n1")[0]
	crash := func(pod *corev1.Pod) {
		for range 3 {
			k.run(pod, false)
		}
	}
	pod := k.daemonPod(ds)
	crash(pod)
	stop()
	stop = e.startController(90 * time.Minute) // the next steps take less than the remaining ten minutes
	crash(pod)
	e.must(e.admin.Delete(e.Context(), pod, client.GracePeriodSeconds(0)))
	replaced := k.daemonPod(ds)
	crash(replaced)
	e.waitsFor("agent", "n1", v1alpha1.ReadingPodNotReady)
	e.must(k.is("agent", isClosed, keyA))
	stop()
	// The controller knows the daemon when the deadline passes. Otherwise, the Event would
	// report that the daemon is not observed yet.
	later := &steppedClock{}
	later.step(90 * time.Minute)
	metrics, _ := e.startReconciledBy(later, "agent", 1)
	later.step(20 * time.Minute)
	crash(replaced)
	e.eventually("the deadline has passed", func() error { return k.overdue("agent") })
	k.deadlineEvents(1, "signal signal: pod "+daemonNamespace+"/"+replaced.Name+" is not ready")
	e.must(e.messageContains("agent", v1alpha1.ConditionOverdue, "n1 waits for signal signal: "))
	e.shows(metrics, "nodegate_gate_nodes", 1, "agent", "overdue")
	e.must(k.is("agent", isClosed, keyA))
}

// steppedClock is the real clock, set ahead by steps.
type steppedClock struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *steppedClock) step(d time.Duration) { c.ahead.Add(int64(d)) }

// Now implements clock.PassiveClock.
func (c *steppedClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.ahead.Load())) }

// Since implements clock.PassiveClock.
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// The time of a deadline does not advance while the node is unreachable, and restarts with
// each boot. The time between two steps of the test is short compared to the ten minutes
// before and after each deadline.
func TestDeadlineRunsInOneBootAndNotInSilence(t *testing.T) {
	e := newEnv(t)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet(ds.Name))
	ng.Spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(6000))}
	stop := e.startController(0)
	e.declare(ng)
	k := e.registered("n1")[0]
	born := time.Now()
	at := func(ahead time.Duration) { // restarts the controller
		stop()
		_, stop = e.startReconciled(ahead, "agent", 1)
	}
	setReady := func(status corev1.ConditionStatus, since time.Duration) {
		k.statusPatch(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`,
			status, born.Add(since).UTC().Format(time.RFC3339)))
	}
	isInTime := func() {
		t.Helper()
		if r := k.record("agent"); r.Overdue {
			t.Fatalf("the node is overdue: %+v", r)
		}
	}
	at(30 * time.Minute)
	setReady(corev1.ConditionUnknown, 20*time.Minute)
	e.eventually("the record has the start of the unreachable time", func() error { return unless(!k.record("agent").SilentSince.IsZero()) })
	at(120 * time.Minute)
	isInTime() // the time does not advance
	setReady(corev1.ConditionTrue, 80*time.Minute)
	e.eventually("the record has the length of the unreachable time", func() error {
		if s := k.record("agent").SilentSeconds; s < 3590 || s > 3605 {
			return fmt.Errorf("unreachable for %d seconds, want 3600", s)
		}
		return nil
	})
	at(150 * time.Minute)
	isInTime()
	at(170 * time.Minute)
	e.eventually("the deadline has passed", func() error { return k.overdue("agent") })
	k.reboot()
	e.eventually("the record has the new boot", func() error {
		if r := k.record("agent"); r.Boot != k.boot || r.Overdue || r.SilentSeconds != 0 {
			return fmt.Errorf("record: %+v", r)
		}
		return nil
	})
	at(260 * time.Minute)
	isInTime()
	at(280 * time.Minute)
	e.eventually("the deadline has passed in the new boot", func() error { return k.overdue("agent") })
	k.deadlineEvents(2, "stays closed")
}

// statusPatch patches the node's status, like the kubelet or the node lifecycle controller.
func (k *kubelet) statusPatch(body string) {
	k.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.admin.Status().Patch(k.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(body))))
}
