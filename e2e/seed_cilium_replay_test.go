// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// replayEnv is a cluster with the real scheduler. Kubelets and the node lifecycle controller
// are replayed, so that their writes have the recorded times. A real node lifecycle controller
// would wait until leases expire.
type replayEnv struct {
	*env
	agentSet *appsv1.DaemonSet
	history  *objectHistory
	// enough is closed when no more pods of workloads should be created.
	enough chan struct{}
}

// unreachableAndTainted returns the row with the first taint of an unreachable node.
func unreachableAndTainted(r *recording) row {
	return r.first(func(row row) bool { return strings.Contains(row.state, "unreachable:NoSchedule]") })
}

// A limitation of Cilium's solution for #16602: neither the kubelet nor the operator taints a
// node that reboots before pods are bound to it. The writes of a real kubelet are replayed
// with a precision of milliseconds, while the real scheduler binds waiting pods to the machine
// as soon as it can. More than 2 s without a write are shortened to 2 s, except while the node
// is unreachable.
func TestSeedCiliumRebootReplay(t *testing.T) {
	c := startReplayCluster(t)
	t.Run("the controller is running", func(t *testing.T) { newReplayEnv(t, c).rebootObserved() })
	t.Run("the controller is down", func(t *testing.T) { newReplayEnv(t, c).rebootUnobserved() })
}

func (w *replayEnv) rebootObserved() {
	quick, slow, restart := w.recording("reboot-quick"), w.recording("reboot-60s"), w.recording("kubelet-restart")
	w.startController(0)
	w.declareGates()
	gated := []*replayed{
		w.machine("quick", quick, "agent"), w.machine("quick-pods-first", quick.podsFirst(), "agent"),
		w.machine("slow", slow, "agent"), w.machine("slow-pods-first", slow.podsFirst(), "agent"),
		w.machine("quick-strict", quick, "strict"), w.machine("quick-pods-first-strict", quick.podsFirst(), "strict"),
	}
	kubeletOnly := w.machine("kubelet-restart", restart, "agent")
	free := []*replayed{w.machine("quick-free", quick, ""), w.machine("slow-free", slow, "")}
	all := slices.Concat(gated, free, []*replayed{kubeletOnly})
	w.open(slices.Concat(gated, []*replayed{kubeletOnly}))
	for _, m := range gated {
		w.pauseForOthers(m)
	}
	for _, m := range free {
		m.until[m.proof()] = func() bool { return w.boundAfter(m, m.written[m.newBoot()]) }
	}
	w.run(all)
	w.allBound(all)
	for _, m := range all {
		w.matchesRecording(m)
	}
	for _, m := range gated {
		w.closedInTime(m)
		w.openedAfterProof(m)
		w.boundNoneWhileClosed(m)
	}
	for _, m := range free {
		w.boundTooEarly(m)
	}
	kubeletOnly.wrote(1) // its first opening
}

// nodegate is down when the machines reboot: until the last write, or until a time at which
// the state in the API is outdated.
func (w *replayEnv) rebootUnobserved() {
	quick, slow := w.recording("reboot-quick"), w.recording("reboot-60s")
	stop := w.startController(0)
	w.declareGates()
	cut := func(name string, r *recording, after row) *replayed {
		m := w.machine(name, r, "agent")
		m.cut = after
		w.pauseForOthers(m)
		return m
	}
	between := []*replayed{
		cut("quick-between", quick, quick.newBoot()),
		cut("quick-pods-first-between", quick.podsFirst(), quick.podsFirst().newBoot()),
		cut("slow-between", slow, unreachableAndTainted(slow)),
		cut("slow-pods-first-between", slow.podsFirst(), slow.podsFirst().newBoot()),
	}
	across := []*replayed{
		w.machine("quick-across", quick, "agent"), w.machine("quick-pods-first-across", quick.podsFirst(), "agent"),
		w.machine("slow-across", slow, "agent"), w.machine("slow-pods-first-across", slow.podsFirst(), "agent"),
	}
	all := slices.Concat(between, across)
	w.open(all)
	stop()
	w.begin(all)
	for _, m := range between {
		w.await(m, m.atCut)
	}
	for _, m := range across {
		w.await(m, m.done)
	}
	w.startController(0)
	for _, m := range between {
		close(m.resume)
	}
	for _, m := range between {
		w.await(m, m.done)
		m.becomes(m.gate, isOpen, m.key())
	}
	for _, m := range across {
		w.recordsUnobservedBoot(m)
	}
	w.allBound(all)
	for _, m := range all {
		w.matchesRecording(m)
	}
	for _, m := range between {
		w.boundNoneWhileClosed(m)
		w.openedAfterProof(m)
	}
	for _, m := range across {
		w.neverClosedAgain(m)
	}
}

func (w *replayEnv) recording(name string) *recording {
	w.Helper()
	r, err := readRecording(name)
	w.must(err)
	return r
}

func startReplayCluster(t *testing.T) *testcluster.Cluster {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	t.Parallel() // it has a cluster of its own
	c, err := testcluster.Start(t.Context(), testcluster.Options{
		Audit: true, Components: []testcluster.Component{testcluster.Scheduler},
		// The scheduler's default client limits would delay bindings.
		ExtraArgs: map[testcluster.Component][]string{testcluster.Scheduler: {"--kube-api-qps=1000", "--kube-api-burst=1000"}},
	})
	if err != nil {
		t.Fatalf("starting a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	e := &env{T: t, cluster: c, admin: newClient(t, c)}
	e.must(e.install(t.Context()))
	return c
}

func newReplayEnv(t *testing.T, c *testcluster.Cluster) *replayEnv {
	t.Helper()
	w := &replayEnv{env: &env{T: t, cluster: c, admin: newClient(t, c)}, enough: make(chan struct{})}
	t.Cleanup(func() { w.clean(context.Background()) })
	w.history = w.watchHistory()
	return w
}

// declareGates creates two gates that wait for the agent. One closes only because of reboots,
// which is the default, the other one also when the agent is no longer ready.
func (w *replayEnv) declareGates() {
	w.Helper()
	w.agentSet = w.daemonSet("agent")
	for _, ng := range []*v1alpha1.NodeGate{newGate("agent", keyA, byDaemonSet("agent")), strictly(newGate("strict", keyB, byDaemonSet("agent")))} {
		ng.Spec.NodeSelector.MatchLabels = map[string]string{"gate": ng.Name}
		ng.Spec.Budget.MaxReclosed = percent("100%") // for all nodes that reboot unobserved at once
		w.declare(ng)
	}
}

// open waits until the gates are open on the machines.
func (w *replayEnv) open(machines []*replayed) {
	w.Helper()
	for _, m := range machines {
		m.becomes(m.gate, isOpen, m.key())
	}
}

// stagger is the interval between the beginnings of two replays, so that 2 cores suffice.
const stagger = 330 * time.Millisecond

// begin starts the replays, one after the other.
func (w *replayEnv) begin(machines []*replayed) {
	start := time.Now().Add(100 * time.Millisecond)
	for i, m := range machines {
		m.workload = &workload{env: w.env, machine: m.name, written: make(chan struct{}, len(m.rows))}
		go m.replay(w.Context(), start.Add(time.Duration(i)*stagger))
		go m.workload.grow(w.Context(), w.enough)
	}
}

func (w *replayEnv) run(machines []*replayed) {
	w.Helper()
	w.begin(machines)
	for _, m := range machines {
		w.await(m, m.done)
	}
}

func (w *replayEnv) await(m *replayed, reached chan struct{}) {
	w.Helper()
	w.eventually("the replay of "+m.name, func() error {
		select {
		case <-reached:
			return nil
		default:
			return fmt.Errorf("at step %d; closed in the spans %v", m.steps.Load(), w.history.closed(m.name, m.key()))
		}
	})
	if w.Failed() {
		w.FailNow()
	}
}

// allBound stops the creation of pods, and waits until all pods of the machines' workloads are
// bound.
func (w *replayEnv) allBound(machines []*replayed) {
	w.Helper()
	close(w.enough)
	for _, m := range machines {
		w.eventually("the workload of "+m.name+" is bound", func() error {
			var pods corev1.PodList
			if err := w.admin.List(w.Context(), &pods, client.MatchingLabels{"workload": m.name}); err != nil {
				return err
			}
			if len(pods.Items) == 0 || slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" }) {
				return errNotYet
			}
			return nil
		})
	}
	w.history.caughtUp()
}

// matchesRecording verifies that exactly the recorded states were written, in their order, and
// logs the longest delay.
func (w *replayEnv) matchesRecording(m *replayed) {
	w.Helper()
	if got, want := w.history.transitions(m), m.transitions(); !slices.Equal(got, want) {
		w.Errorf("%s: the replay has\n%s\nthe recording\n%s", m.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.Logf("%s: the longest delay between two writes was %v", m.name, m.late.Round(time.Millisecond))
}

// rebooted returns the span in which the gate was closed because of the reboot. The first span
// begins at birth.
func (w *replayEnv) rebooted(m *replayed) span {
	w.Helper()
	closed := w.history.closed(m.name, m.key())
	if len(closed) != 2 {
		w.Fatalf("%s: closed in the spans %v, want one from birth and one more", m.name, closed)
	}
	return closed[1]
}

// firstSign returns the first write from which the gate can know of the reboot: of the node,
// or of the agent if the gate depends on it while it is open.
func (m *replayed) firstSign() row {
	return m.first(func(row row) bool {
		return row == m.unreachable() || row == m.newBoot() || row.object == "agent" && m.gate == "strict"
	})
}

// closedInTime verifies that the gate closed while the node was unreachable, or, if it never
// was, after the first sign of the reboot. Until then, the node is ready according to the API,
// so that no taint can prevent bindings.
func (w *replayEnv) closedInTime(m *replayed) {
	w.Helper()
	closed, sign, boot := w.rebooted(m).from, m.written[m.firstSign()], m.written[m.newBoot()]
	if closed <= sign {
		w.Errorf("%s: closed at %d, before the first sign of the reboot at %d", m.name, closed, sign)
	}
	if m.unreachable().at > 0 {
		if closed >= boot {
			w.Errorf("%s: closed at %d, want before the new boot's report at %d", m.name, closed, boot)
		}
		return
	}
	bindings, _ := w.history.workloadOf(m.name, 0)
	if !slices.ContainsFunc(bindings, func(b binding) bool { return b.at < sign }) {
		w.Errorf("%s: no pod was bound while the node was ready according to the API: the workload is too small", m.name)
	}
	writes := w.history.writesOf(m.kubelet)
	if report, ok := writes[sign]; ok {
		w.Logf("%s: closed %v after the first sign of the reboot", m.name, writes[closed].at.Sub(report.at).Round(time.Millisecond))
	}
}

// openedAfterProof verifies that only nodegate opened the gate, and that it opened after the
// write that proves that the agent of the new boot is ready.
func (w *replayEnv) openedAfterProof(m *replayed) {
	w.Helper()
	closed, proof := w.rebooted(m), m.written[m.proof()]
	if closed.to <= proof {
		w.Errorf("%s: opened at %d on stale evidence; the agent was ready at %d", m.name, closed.to, proof)
	}
	writes := w.history.writesOf(m.kubelet)
	for _, s := range w.history.closed(m.name, m.key()) {
		if by := writes[s.to].user; by != installationUser {
			w.Errorf("%s: according to the audit log, %q opened the gate at %d", m.name, by, s.to)
		}
	}
}

// recordsUnobservedBoot waits until the gate's record has the machine's boot. The reboot was
// not observed, and the agent was ready before nodegate restarted.
func (w *replayEnv) recordsUnobservedBoot(m *replayed) {
	w.Helper()
	w.eventually("the record of "+m.name+" has the current boot", func() error {
		if r, boot := m.record(m.gate), m.node().Status.NodeInfo.BootID; r.Boot != boot {
			return fmt.Errorf("the record has boot %q, the node %q", r.Boot, boot)
		}
		return nil
	})
}

// neverClosedAgain verifies that the gate was closed only at birth: it does not close because
// of an earlier reboot if the agent is ready.
func (w *replayEnv) neverClosedAgain(m *replayed) {
	w.Helper()
	if closed := w.history.closed(m.name, m.key()); len(closed) != 1 {
		w.Errorf("%s: closed in the spans %v, want only one from birth", m.name, closed)
	}
}

// inEffectFrom returns the resource version from which the scheduler knows that the gate has
// closed because of the reboot: it observes a taint a moment after the write, and has observed
// it once it has rejected some pods that were created later. One of them might overtake a
// binding that is in progress.
func (w *replayEnv) inEffectFrom(m *replayed) int64 {
	const some = 3
	closed := w.history.closed(m.name, m.key())
	if len(closed) < 2 {
		return forever
	}
	_, rejections := w.history.workloadOf(m.name, closed[1].from)
	if len(rejections) < some {
		return forever
	}
	return rejections[some-1]
}

// boundNoneWhileClosed verifies that no pod was bound from when the taint was in effect until
// the gate opened. If the gate closed before the reboot, this holds at least from the reboot.
func (w *replayEnv) boundNoneWhileClosed(m *replayed) {
	w.Helper()
	closed := w.rebooted(m)
	inEffect := span{from: w.inEffectFrom(m), to: closed.to}
	if inEffect.from >= inEffect.to {
		w.Fatalf("%s: the scheduler rejected too few pods while the gate was closed: the workload is too small", m.name)
	}
	if boot := m.written[m.newBoot()]; closed.from < boot {
		inEffect.from = min(inEffect.from, boot)
	}
	bindings, _ := w.history.workloadOf(m.name, 0)
	inProgress := 0
	for _, b := range bindings {
		switch {
		case inEffect.has(b.at):
			w.Errorf("%s: %s was bound while the gate was closed (%d to %d)", m.name, b, inEffect.from, inEffect.to)
		case closed.has(b.at):
			inProgress++
		}
	}
	w.Logf("%s: %d of %d pods were bound in the moment after the gate closed", m.name, inProgress, len(bindings))
}

// boundTooEarly verifies that the workload is large enough: without a gate, pods are bound
// before the agent is ready, and if the node was unreachable, as soon as core has removed the
// only taint that pods do not tolerate by default.
func (w *replayEnv) boundTooEarly(m *replayed) {
	w.Helper()
	early := span{m.written[m.newBoot()], m.written[m.proof()]}
	bindings, _ := w.history.workloadOf(m.name, 0)
	n := 0
	for _, b := range bindings {
		if early.has(b.at) {
			n++
		}
	}
	if n == 0 {
		w.Errorf("%s: without a gate, no pod was bound before the agent was ready: the workload is too small", m.name)
	}
	w.Logf("%s: without a gate, %d pods were bound before the agent was ready", m.name, n)
}
