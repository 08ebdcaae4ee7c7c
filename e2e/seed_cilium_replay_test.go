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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// replayWorld is a cluster with the real scheduler. Nobody else writes: kubelets
// and the node lifecycle controller are replayed, so that their writes come when
// they were recorded; the real one would wait for leases to run out.
type replayWorld struct {
	*env
	agentSet *appsv1.DaemonSet
	history  *chronicle
	// sated is closed when no more hungry pods are to come.
	sated chan struct{}
}

// Rows at which nodegate comes back, in the middle of a reboot.
func silentAndTainted(r *recording) row {
	return r.first(func(row row) bool { return strings.Contains(row.state, "unreachable:NoSchedule]") })
}

// Cilium's caveat of #16602: neither the kubelet nor the operator taints a node
// that reboots before pods are bound to it. What a real kubelet told the API
// server is replayed to the write and the millisecond, with pods waiting for the
// machine that the real scheduler binds as soon as it may. Times of more than 2 s
// without a write are shortened to that, but not while the node is silent.
func TestSeedCiliumRebootReplay(t *testing.T) {
	c := startReplayCluster(t)
	t.Run("the controller is there", func(t *testing.T) { newReplayWorld(t, c).rebootWatched() })
	t.Run("the controller is down", func(t *testing.T) { newReplayWorld(t, c).rebootUnwatched() })
}

func (w *replayWorld) rebootWatched() {
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
		w.waitsForOthers(m)
	}
	for _, m := range free {
		m.until[m.proof()] = func() bool { return w.ate(m, m.told[m.newBoot()]) }
	}
	w.run(all)
	w.fed(all)
	for _, m := range all {
		w.faithful(m)
	}
	for _, m := range gated {
		w.closedInTime(m)
		w.openedRightfully(m)
		w.keptHungry(m)
	}
	for _, m := range free {
		w.boundTooEarly(m)
	}
	kubeletOnly.wrote(1) // its first opening
}

// nodegate is away when the machines reboot: until the last write, or until it
// would be wrong to go by what the API says.
func (w *replayWorld) rebootUnwatched() {
	quick, slow := w.recording("reboot-quick"), w.recording("reboot-60s")
	stop := w.startController(0)
	w.declareGates()
	cut := func(name string, r *recording, after row) *replayed {
		m := w.machine(name, r, "agent")
		m.cut = after
		w.waitsForOthers(m)
		return m
	}
	between := []*replayed{
		cut("quick-between", quick, quick.newBoot()),
		cut("quick-pods-first-between", quick.podsFirst(), quick.podsFirst().newBoot()),
		cut("slow-between", slow, silentAndTainted(slow)),
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
		close(m.goOn)
	}
	for _, m := range between {
		w.await(m, m.done)
		m.becomes(m.gate, isOpen, m.key())
	}
	for _, m := range across {
		w.takesUpItsBoot(m)
	}
	w.fed(all)
	for _, m := range all {
		w.faithful(m)
	}
	for _, m := range between {
		w.keptHungry(m)
		w.openedRightfully(m)
	}
	for _, m := range across {
		w.neverClosedAgain(m)
	}
}

func (w *replayWorld) recording(name string) *recording {
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
		// The scheduler's own limit would keep it from binding at once.
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

func newReplayWorld(t *testing.T, c *testcluster.Cluster) *replayWorld {
	t.Helper()
	w := &replayWorld{env: &env{T: t, cluster: c, admin: newClient(t, c)}, sated: make(chan struct{})}
	t.Cleanup(func() { w.clean(context.Background()) })
	w.history = w.watchHistory()
	return w
}

// declareGates declares two gates that wait for the agent. One closes for reboots
// only, which is the default; the other also when the agent goes away.
func (w *replayWorld) declareGates() {
	w.Helper()
	w.agentSet = w.daemonSet("agent")
	for _, ng := range []*v1alpha1.NodeGate{newGate("agent", keyA, byDaemonSet("agent")), strictly(newGate("strict", keyB, byDaemonSet("agent")))} {
		ng.Spec.NodeSelector.MatchLabels = map[string]string{"gate": ng.Name}
		ng.Spec.Budget.MaxReclosed = ptr.To(intstr.FromString("100%")) // all that reboot unobserved at once
		w.declare(ng)
	}
}

// open waits until the machines are open, as they were found.
func (w *replayWorld) open(machines []*replayed) {
	w.Helper()
	for _, m := range machines {
		m.becomes(m.gate, isOpen, m.key())
	}
}

// stagger keeps the machines' writes from coming all at once: 2 cores suffice.
const stagger = 330 * time.Millisecond

// begin begins the replays, one soon after the other.
func (w *replayWorld) begin(machines []*replayed) {
	start := time.Now().Add(100 * time.Millisecond)
	for i, m := range machines {
		m.crowd = &crowd{env: w.env, machine: m.name, news: make(chan struct{}, len(m.rows))}
		go m.replay(w.Context(), start.Add(time.Duration(i)*stagger))
		go m.crowd.feed(w.Context(), w.sated)
	}
}

func (w *replayWorld) run(machines []*replayed) {
	w.Helper()
	w.begin(machines)
	for _, m := range machines {
		w.await(m, m.done)
	}
}

func (w *replayWorld) await(m *replayed, reached chan struct{}) {
	w.Helper()
	w.eventually("the replay of "+m.name, func() error {
		select {
		case <-reached:
			return nil
		default:
			return fmt.Errorf("it is at step %d; closed in the spans %v", m.steps.Load(), w.history.closed(m.name, m.key()))
		}
	})
	if w.Failed() {
		w.FailNow()
	}
}

// fed lets no crowd grow any more, and waits until nobody in those of the machines
// is hungry.
func (w *replayWorld) fed(machines []*replayed) {
	w.Helper()
	close(w.sated)
	for _, m := range machines {
		w.eventually("the crowd of "+m.name+" is bound", func() error {
			var pods corev1.PodList
			if err := w.admin.List(w.Context(), &pods, client.MatchingLabels{"hungry": m.name}); err != nil {
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

// faithful checks that the API server was told what was recorded, and nothing
// else, in that order; and says how punctually.
func (w *replayWorld) faithful(m *replayed) {
	w.Helper()
	if got, want := w.history.lines(m), m.lines(); !slices.Equal(got, want) {
		w.Errorf("%s: replayed\n%s\nwas recorded\n%s", m.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.Logf("%s: between writes, time was kept to within %v", m.name, m.late.Round(time.Millisecond))
}

// rebooted returns the span in which the machine was closed for its reboot. The
// first one is its birth's.
func (w *replayWorld) rebooted(m *replayed) span {
	w.Helper()
	closed := w.history.closed(m.name, m.key())
	if len(closed) != 2 {
		w.Fatalf("%s: closed in the spans %v, want at birth and once more", m.name, closed)
	}
	return closed[1]
}

// firstWord is the first write by which the gate can know of the reboot: of the
// node, or of the agent if the gate looks at that while it is open.
func (m *replayed) firstWord() row {
	return m.first(func(row row) bool {
		return row == m.silence() || row == m.newBoot() || row.object == "agent" && m.gate == "strict"
	})
}

// closedInTime checks that the gate closed while the node was silent; or, when
// it never fell silent, after the first word of the reboot. Until then the API
// calls the node ready: what is bound in that window, no taint can hold.
func (w *replayWorld) closedInTime(m *replayed) {
	w.Helper()
	shut, word, boot := w.rebooted(m), m.told[m.firstWord()], m.told[m.newBoot()]
	meals, _ := w.history.crowdOf(m.name, 0)
	if shut.from <= word {
		w.Errorf("%s: closed at %d, before the first word of the reboot at %d", m.name, shut.from, word)
	}
	if m.silence().at > 0 {
		if shut.from >= boot {
			w.Errorf("%s: closed at %d, want before the return at %d", m.name, shut.from, boot)
		}
		return
	}
	if !slices.ContainsFunc(meals, func(one meal) bool { return one.at < word }) {
		w.Errorf("%s: nothing was bound while the API called the node ready: the crowd is not hungry", m.name)
	}
	if told, ok := w.history.writesOf(m.name)[word]; ok {
		w.Logf("%s: closed %v after the new boot was told", m.name, w.history.writesOf(m.name)[shut.from].at.Sub(told.at).Round(time.Millisecond))
	}
}

// openedRightfully checks that the only opening since is nodegate's, and came
// after the write that proves that the agent of the new boot is ready.
func (w *replayWorld) openedRightfully(m *replayed) {
	w.Helper()
	shut, proof := w.rebooted(m), m.told[m.proof()]
	if shut.to <= proof {
		w.Errorf("%s: opened at %d on stale evidence; the agent was ready at %d", m.name, shut.to, proof)
	}
	writes := w.history.writesOf(m.name)
	for _, closed := range w.history.closed(m.name, m.key()) {
		if by := writes[closed.to].user; by != installationUser {
			w.Errorf("%s: by the audit log, %q opened at %d", m.name, by, closed.to)
		}
	}
}

// takesUpItsBoot waits until the gate's record names the machine's boot: nobody saw the
// reboot, and the agent has been ready since before nodegate was back.
func (w *replayWorld) takesUpItsBoot(m *replayed) {
	w.Helper()
	w.eventually("the record of "+m.name+" takes up the boot", func() error {
		node := m.node()
		if err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		if r := m.record(m.gate); r.Boot != node.Status.NodeInfo.BootID {
			return fmt.Errorf("it names %q", r.Boot)
		}
		return nil
	})
}

// neverClosedAgain checks that the machine was closed at its birth only: a reboot of a
// while ago, after which all is well, is no reason to close.
func (w *replayWorld) neverClosedAgain(m *replayed) {
	w.Helper()
	if closed := w.history.closed(m.name, m.key()); len(closed) != 1 {
		w.Errorf("%s: closed in the spans %v, want at birth only", m.name, closed)
	}
}

// tookHold tells since when the closing for the reboot is known to the scheduler:
// it hears of a taint a moment after it was written, and has, when it has refused
// some pods that came later. One of them might overtake a binding on its way.
func (w *replayWorld) tookHold(m *replayed) int64 {
	const some = 3
	closed := w.history.closed(m.name, m.key())
	if len(closed) < 2 {
		return forever
	}
	_, refusals := w.history.crowdOf(m.name, closed[1].from)
	if len(refusals) < some {
		return forever
	}
	return refusals[some-1]
}

// keptHungry checks that nothing was bound from when the closing took hold until
// the opening; where it closed before the reboot, from the reboot on at least.
func (w *replayWorld) keptHungry(m *replayed) {
	w.Helper()
	shut := w.rebooted(m)
	held := span{from: w.tookHold(m), to: shut.to}
	if held.from >= held.to {
		w.Fatalf("%s: the scheduler refused nobody while the gate was closed: the crowd is not hungry", m.name)
	}
	if boot := m.told[m.newBoot()]; shut.from < boot {
		held.from = min(held.from, boot)
	}
	meals, _ := w.history.crowdOf(m.name, 0)
	onTheWay := 0
	for _, one := range meals {
		switch {
		case held.has(one.at):
			w.Errorf("%s: %s was bound while the gate was closed (%d to %d)", m.name, one, held.from, held.to)
		case shut.has(one.at):
			onTheWay++
		}
	}
	w.Logf("%s: %d pods of %d were bound in the moment after the closing", m.name, onTheWay, len(meals))
}

// boundTooEarly checks that the crowd is hungry enough: without a gate it is let
// in while the agent is not there, and after a silence as soon as core has lifted
// the one taint that every pod does not tolerate.
func (w *replayWorld) boundTooEarly(m *replayed) {
	w.Helper()
	early := span{m.told[m.newBoot()], m.told[m.proof()]}
	meals, _ := w.history.crowdOf(m.name, 0)
	n := 0
	for _, one := range meals {
		if early.has(one.at) {
			n++
		}
	}
	if n == 0 {
		w.Errorf("%s: without a gate, nothing was bound before the agent was ready: the crowd is not hungry", m.name)
	}
	w.Logf("%s: without a gate, %d pods were bound before the agent was ready", m.name, n)
}
