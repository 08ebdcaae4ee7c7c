// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// replica is a replica of nodegate that leads, or assumes that it does.
type replica struct {
	down bool
	// gates is the version of the gates that it has observed, or notRead.
	gates  int8
	views  [nodesMax]view
	ledger [nodesMax]account
}

// notRead is the version of a replica that has not read the gates.
const notRead = -1

// view is what a replica knows about a node, which may be outdated.
type view struct {
	node node
	pod  podStatus
	// seen, after and ready are what it has observed of the node's boot (gate.Boot).
	// ready is the boot of the pod that was known to be ready when the boot, or this Node, began.
	seen         age
	after, ready int8
	// late is true if another replica has written since, and the watch has not delivered the
	// pod's state at that time yet.
	late bool
	// memory is what its last decision passed on.
	memory *memory
}

// unseen is the boot before one whose start was not observed, and the boot of no pod.
const unseen = -1

// memory is what a decision passes on to the next. Equal memories are the same pointer.
type memory struct {
	lost   map[string][]gate.Lost
	left   map[string]time.Time
	shadow map[string]string
}

// start makes a replica read all nodes. It has lost what it remembered, and reads the
// gates afterwards.
func (r *replica) start(machines []machine) {
	*r = replica{gates: notRead}
	for i := range machines {
		r.views[i] = view{node: machines[i].node, pod: machines[i].pod, after: unseen, ready: unseen}
	}
}

// see observes a state of the Node, from the watch or from a response.
func (v *view) see(n node) {
	before := v.node
	v.node = n
	switch {
	case before.uid != n.uid:
		*v = view{node: n, pod: v.pod, after: unseen}
	case before.boot != n.boot:
		v.seen, v.after = 0, before.boot
	default:
		return
	}
	if v.ready = unseen; v.pod.there && v.pod.ready {
		v.ready = v.pod.boot
	}
}

// seePod observes the newest state of the pod.
func (v *view) seePod(p podStatus) { v.pod, v.late = p, false }

// older lets time pass for what a replica knows.
func (r *replica) older(x *explorer, by age) {
	for i := range x.nodes {
		v := &r.views[i]
		if r.down {
			continue
		}
		v.node, v.pod = v.node.older(x.api, by), v.pod.older(by)
		v.seen, v.memory = v.seen.older(by), x.agedMemory(v.memory, by)
	}
}

const daemonQuery = "app=agent"

var agentPods = gate.PodQuery{Namespace: "kube-system", Selector: daemonQuery}

// theDaemon does not tolerate other tools' startup taints.
func theDaemon(tolerated ...string) *gate.DaemonSets {
	ds := gate.DaemonSet{
		Namespace: "kube-system", Name: "agent", UID: "ds", Labels: labels.Set{"app": "agent"}, PodLabels: labels.Set{"app": "agent"},
		Pods: agentPods, Affinity: nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{}),
	}
	for _, key := range tolerated {
		ds.Tolerations = append(ds.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}, Items: []gate.DaemonSet{ds}}
}

// question is everything that a decision depends on. Grants are bits, one per gate.
type question struct {
	view   view
	gates  int8
	grants uint8
}

// answer is the result of a decision.
type answer struct {
	changes bool
	patch   string
	memory  *memory
	// wants contains the gates that request budget or pace.
	wants uint8
	// were and are contain the gates that count against their budget, before and after.
	were, are uint8
}

// ask makes a decision, unless the same one has been made before: Decide is pure.
func (x *explorer) ask(q question) *answer {
	if a, known := x.answers[q]; known {
		return a
	}
	f := x.facts(&q)
	var gates []gate.Gate
	if q.gates != notRead {
		gates = x.versions[q.gates].gates
	}
	d := x.decide(gates, f, now)
	a := &answer{changes: d.Changes, memory: x.remember(&d)}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		bit := x.bit(v.Gate)
		if v.Wants != "" {
			a.wants |= bit
		}
		if v.After == v1alpha1.StateClosed && gate.IsBudgeted(v.Reason) {
			a.are |= bit
		}
	}
	a.were = x.budgeted(q.view.node.marks)
	if d.Changes {
		patch, err := write.Patch(&f.Node, &d)
		if err != nil {
			panic(err)
		}
		if a.changes = patch != nil; a.changes {
			a.patch = string(x.wire(patch))
		}
	}
	x.answers[q] = a
	return a
}

// bit returns a gate's bit in grants.
func (x *explorer) bit(name string) uint8 { return 1 << x.index[name] }

// budgeted returns the gates that are closed, according to the records, for reasons
// that need budget.
func (x *explorer) budgeted(m *marks) (bits uint8) {
	for name, r := range m.records {
		if r.State == v1alpha1.StateClosed && gate.IsBudgeted(r.Reason) {
			bits |= x.bit(name)
		}
	}
	return bits
}

// facts returns what the replica knows about a node.
func (x *explorer) facts(q *question) *gate.Facts {
	v := &q.view
	f := &gate.Facts{
		Node: *x.factsOf(v.node), Boot: gate.Boot{Seen: v.seen.time()}, DaemonSets: x.daemons,
		Pods:            map[gate.PodQuery][]gate.Pod{agentPods: nil},
		CompleteSources: map[string]bool{v1alpha1.SourceCRD: q.gates != notRead},
		Granted:         map[string]bool{},
	}
	if v.late {
		f.PodsAt = now.Add(-time.Second)
	}
	if v.after != unseen {
		f.Boot.After = bootID(v.after)
	}
	if v.ready != unseen {
		f.Boot.Known = []gate.Incarnation{incarnation(v.ready)}
	}
	if q.gates != notRead {
		f.Transient.GateKeys = x.versions[q.gates].keys
	}
	if m := v.memory; m != nil {
		f.Lost, f.LeftSince, f.Shadow = m.lost, m.left, m.shadow
	}
	for name := range x.index {
		if q.grants&x.bit(name) != 0 {
			f.Granted[name] = true
		}
	}
	created := day.time()
	if v.after == unseen && v.ready != unseen { // in the second in which this Node was created, so its time proves nothing
		created = f.Node.Created
	}
	if v.pod.there {
		f.Pods[agentPods] = []gate.Pod{{
			UID: "pod", Name: "kube-system/agent-x", Owner: "ds", Created: created, Ready: v.pod.ready, ReadySince: v.pod.since.time(),
			Incarnation: incarnation(v.pod.boot),
		}}
	}
	return f
}

// incarnation returns the incarnation of the daemon's pod in a boot.
func incarnation(boot int8) gate.Incarnation {
	return gate.NewIncarnation("pod", []string{fmt.Sprint("container", boot)})
}

// remember returns what a decision passes on; nil if that is nothing.
func (x *explorer) remember(d *gate.Decision) *memory {
	m := memory{lost: make(map[string][]gate.Lost), left: make(map[string]time.Time), shadow: make(map[string]string)}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Lost != nil {
			m.lost[v.Gate] = v.Lost
		}
		if !v.LeftSince.IsZero() {
			m.left[v.Gate] = v.LeftSince
		}
		if v.Shadow != "" {
			m.shadow[v.Gate] = v.Shadow
		}
	}
	return x.memory(m)
}

func (x *explorer) memory(m memory) *memory {
	if len(m.lost)+len(m.left)+len(m.shadow) == 0 {
		return nil
	}
	text := fmt.Sprint(m)
	known, ok := x.memories[text]
	if !ok {
		known = &m
		x.memories[text] = known
	}
	return known
}

// agedMemory returns the memory after the given time.
func (x *explorer) agedMemory(m *memory, by age) *memory {
	if m == nil {
		return nil
	}
	out := memory{lost: make(map[string][]gate.Lost, len(m.lost)), left: make(map[string]time.Time, len(m.left)), shadow: maps.Clone(m.shadow)}
	for name, signals := range m.lost {
		out.lost[name] = slices.Clone(signals)
		for i := range signals {
			if !signals[i].Since.IsZero() {
				out.lost[name][i].Since = ageOf(signals[i].Since).older(by).time()
			}
		}
	}
	for name, t := range m.left {
		out.left[name] = ageOf(t).older(by).time()
	}
	for name, raw := range out.shadow {
		if r, err := gate.ParseRecord(raw); err == nil {
			out.shadow[name] = agedRecord(r, by)
		}
	}
	return x.memory(out)
}

// account is how a replica counts a node, like fleet.Ledger: the gates that
// hold budget, and those with a write in flight.
type account struct {
	known          bool
	closed, places uint8
	// doubtful is true while it is unknown whether a write was applied.
	doubtful bool
}

// grants returns the requested budgets that are available. They are reserved for the
// node until its write has been applied.
func (x *explorer) grants(r *replica, n int, wants uint8) uint8 {
	if x.maxReclosed == nil {
		return wants
	}
	var granted uint8
	for _, i := range x.index {
		bit := uint8(1) << i
		if wants&bit != 0 && (r.ledger[n].places&bit != 0 || x.available(r, bit) > 0) {
			granted |= bit
		}
	}
	r.ledger[n].places |= granted
	return granted
}

// available returns how many more nodes a gate may close. It is zero until all nodes
// are accounted for.
func (x *explorer) available(r *replica, bit uint8) int {
	free := gate.MaxReclosed(x.maxReclosed, x.nodes)
	for i := range x.nodes {
		a := &r.ledger[i]
		switch {
		case !a.known:
			return 0
		case a.closed&bit != 0:
			free--
		}
		if a.places&bit != 0 {
			free--
		}
	}
	return free
}
