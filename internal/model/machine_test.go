// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// podStatus is the status of the daemon's pod on the node according to the API.
type podStatus struct {
	there, ready bool
	// boot is the boot of the containers in the status.
	boot int8
	// since is how long it has been ready, or not ready.
	since age
}

// machine is a node: its state according to the API, and its actual state.
type machine struct {
	node node
	pod  podStatus
	// boot is how often the machine has booted or been replaced.
	boot int8
	// healthy reports whether the container runtime responds. daemonUp reports whether
	// the daemon is ready.
	healthy, daemonUp bool
	// reported is how long the API has reported the node's boot. left is how long no gate
	// has selected the node.
	reported, left age
}

// budget is how often each kind of failure may still happen. any is the total.
type budget struct {
	any                                                                               int8
	reboots, failures, lapses, flaps, fits, renewals, writers, edits, crashes, losses int8
	ticks                                                                             int8
}

// spend uses up one failure of a kind.
func (b *budget) spend(kind *int8) {
	*kind--
	if b.any--; b.any == 0 {
		*b = budget{ticks: b.ticks}
	}
}

func (b *budget) may(kind int8) bool { return kind > 0 && b.any > 0 }

func newMachine(a *api) machine {
	m := machine{pod: podStatus{there: true, ready: true, since: long}, healthy: true, daemonUp: true, reported: long}
	m.node = node{selected: true, fit: true, since: long, created: day}
	m.node.marks = a.marks([]corev1.Taint{{Key: foreignKey, Effect: corev1.TaintEffectNoSchedule}}, map[string]string{"foreign": "x"})
	return m
}

// older lets time pass for the machine.
func (m *machine) older(a *api, by age) {
	m.node = m.node.older(a, by)
	m.pod = m.pod.older(by)
	m.reported = m.reported.older(by)
	if !m.node.selected {
		m.left = m.left.older(by)
	}
}

func (n node) older(a *api, by age) node {
	n.since, n.created, n.marks = n.since.older(by), min(n.created+by, max(n.created, day)), a.aged(n.marks, by)
	return n
}

func (p podStatus) older(by age) podStatus {
	p.since = p.since.older(by)
	return p
}

// report writes the Node's status, as the kubelet or the node lifecycle controller
// does.
func (m *machine) report(status liveness) {
	if m.node.ready != status {
		m.node.ready, m.node.since = status, 0
	}
	if status != isUnknown && m.node.boot != m.boot {
		m.node.boot, m.reported = m.boot, 0
	}
}

// reportPod writes the pod's status, as the kubelet does.
func (m *machine) reportPod() { m.setPod(podStatus{there: true, ready: m.daemonUp, boot: m.boot}) }

func (m *machine) setPod(p podStatus) {
	if p.since = 0; p.ready == m.pod.ready {
		p.since = m.pod.since
	}
	m.pod = p
}

// showsBoot reports whether the API shows the node's current boot. A kubelet reports it
// within a second of its start, before any daemon is ready.
func (m *machine) showsBoot() bool { return m.node.boot == m.boot }

// synced reports whether the pod's status is correct.
func (m *machine) synced() bool {
	return !m.pod.there || m.pod.ready == m.daemonUp && m.pod.boot == m.boot
}

func (m *machine) relabel(selected bool) { m.node.selected, m.left = selected, 0 }

// mayWait reports whether time may pass: a kubelet that is Ready synchronizes its pods
// within 10 seconds, and is marked as unreachable after 50.
func (m *machine) mayWait() bool {
	return m.node.ready != isReady || m.synced() && m.showsBoot()
}

// becomeWell ends all failures.
func (m *machine) becomeWell() {
	m.healthy, m.daemonUp = true, true
	m.report(isReady)
	m.reportPod()
	m.node.fit = true
	if !m.node.selected {
		m.relabel(true)
	}
}

// event is an event that can happen to the machine.
type event struct {
	name string
	may  func(m *machine, b *budget) bool
	do   func(x *explorer, s *state, m *machine)
	// slow is true for an event that takes at least seconds: no watch is delayed for
	// that long.
	slow bool
}

// events are the possible events outside nodegate.
var events = []event{
	{"reboots", func(_ *machine, b *budget) bool { return b.may(b.reboots) }, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.reboots)
		m.boot, m.daemonUp = m.boot+1, false
	}, true},
	{"reports Ready", func(m *machine, _ *budget) bool {
		return m.node.ready != isReady || !m.showsBoot()
	}, func(_ *explorer, _ *state, m *machine) { m.healthy = true; m.report(isReady) }, false},
	{"reports NotReady: its runtime does not respond", func(m *machine, b *budget) bool {
		return b.may(b.failures) && m.node.ready != isNotReady
	}, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.failures)
		m.healthy = false
		m.report(isNotReady)
	}, false},
	{"announces its shutdown", func(m *machine, b *budget) bool {
		return b.may(b.failures) && m.node.ready == isReady && m.showsBoot()
	}, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.failures)
		m.report(isShuttingDown)
	}, false},
	{"is marked as unreachable", func(m *machine, b *budget) bool { return b.may(b.failures) && m.node.ready != isUnknown }, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.failures)
		m.report(isUnknown)
		m.setPod(podStatus{there: m.pod.there, boot: m.pod.boot})
	}, true},
	{"has its daemon become ready", func(m *machine, _ *budget) bool { return m.healthy && !m.daemonUp && m.showsBoot() }, func(_ *explorer, _ *state, m *machine) {
		m.daemonUp = true
	}, true},
	{"has its daemon fail", func(m *machine, b *budget) bool { return b.may(b.lapses) && m.daemonUp }, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.lapses)
		m.daemonUp = false
	}, true},
	{"reports its pods", func(m *machine, _ *budget) bool { return m.healthy && !m.synced() }, func(_ *explorer, _ *state, m *machine) { m.reportPod() }, false},
	{"is relabelled", func(_ *machine, b *budget) bool { return b.may(b.flaps) }, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.flaps)
		m.relabel(!m.node.selected)
	}, true},
	{"loses or gets the label that a gate waits for", func(_ *machine, b *budget) bool { return b.may(b.fits) }, func(_ *explorer, s *state, m *machine) {
		s.left.spend(&s.left.fits)
		m.node.fit = !m.node.fit
	}, true},
	{"is replaced by another machine with the same name", func(_ *machine, b *budget) bool { return b.may(b.renewals) }, func(x *explorer, s *state, m *machine) {
		s.left.spend(&s.left.renewals)
		x.replace(s, m)
	}, true},
	{"has a gate's taints removed by another writer", func(m *machine, b *budget) bool {
		return b.may(b.writers) && slices.ContainsFunc(m.node.marks.taints, isOurs)
	}, func(x *explorer, s *state, m *machine) {
		s.left.spend(&s.left.writers)
		m.node.marks = x.marks(slices.DeleteFunc(slices.Clone(m.node.marks.taints), isOurs), m.node.marks.annotations)
	}, false},
	{"has a gate's taint added by another writer", func(m *machine, b *budget) bool { return b.may(b.writers) && !m.node.marks.has(keyA) }, func(x *explorer, s *state, m *machine) {
		s.left.spend(&s.left.writers)
		m.node.marks = x.marks(append(slices.Clone(m.node.marks.taints), corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}), m.node.marks.annotations)
	}, false},
	{"has a foreign taint added or removed at the front", func(_ *machine, b *budget) bool { return b.may(b.writers) }, func(x *explorer, s *state, m *machine) {
		s.left.spend(&s.left.writers)
		t := corev1.Taint{Key: "foreign.example/x", Effect: corev1.TaintEffectNoExecute}
		taints := slices.DeleteFunc(slices.Clone(m.node.marks.taints), func(on corev1.Taint) bool { return on.Key == t.Key })
		if len(taints) == len(m.node.marks.taints) {
			taints = slices.Insert(taints, 0, t)
		}
		m.node.marks = x.marks(taints, m.node.marks.annotations)
	}, false},
}

// isOurs reports whether gates use the taint's key.
func isOurs(t corev1.Taint) bool { return t.Key == keyA || t.Key == keyB || t.Key == keyC }

// replace deletes the Node, and another machine registers with the same name. The
// earlier pod remains until the new kubelet has reported it. Gates close at the Node's
// birth, as by the API server's policy.
func (x *explorer) replace(s *state, m *machine) {
	born := machine{pod: m.pod, boot: m.boot + 1, healthy: true}
	born.node = node{uid: m.node.uid + 1, boot: born.boot, selected: true, fit: m.node.fit, ready: isNotReady}
	taints, annotations := []corev1.Taint{{Key: foreignKey, Effect: corev1.TaintEffectNoSchedule}}, map[string]string{"foreign": "x"}
	born.node.marks = x.marks(taints, annotations)
	var closing []gate.Gate
	for _, g := range x.versions[s.gates].gates {
		if g.Accepted && enforces(&g) && !g.CloseWhen {
			closing = append(closing, g)
		}
	}
	d := gate.Birth(closing, *x.factsOf(born.node))
	for name, raw := range d.Records {
		annotations[v1alpha1.RecordAnnotationPrefix+name] = raw
	}
	born.node.marks = x.marks(slices.Clone(d.Taints), annotations)
	*m = born
}
