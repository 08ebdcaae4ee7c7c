// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// An expectation contains the verdict's input besides the audit log.
type expectation struct {
	nodegate   string // the user that nodegate is to the API server
	gates      []gate
	setUpTaint corev1.Taint // while it is on a node, no gate opens
	nodes      []string     // that were to register
	workload   int          // pods that were to be bound and tolerate no gate
	steady     period       // when nothing changed
}

// A period is a time interval.
type period struct{ from, to time.Time }

func (p period) contains(t time.Time) bool { return !t.Before(p.from) && !t.After(p.to) }

// A check is one line of the verdict.
type check struct {
	name   string
	pass   bool
	value  string
	faults []string // what speaks against it
}

// A verdict is the result of checking a run's audit log.
type verdict struct {
	writes    int
	checks    []check
	latencies []time.Duration // from each gate's moment to its opening, sorted
	held      []heldGate
}

// A heldGate is a gate that is still closed on a node at the end.
type heldGate struct{ node, gate string }

func (v *verdict) pass() bool {
	return !slices.ContainsFunc(v.checks, func(c check) bool { return !c.pass })
}

// judge computes the verdict from the audit log alone. It uses neither nodegate's
// own reports nor the demo's observations.
func judge(e expectation, log []write) verdict {
	j := judgement{expectation: &e, log: log, byName: readNodes(&e, log)}
	for _, name := range slices.Sorted(maps.Keys(j.byName)) {
		j.nodes = append(j.nodes, j.byName[name])
	}
	return verdict{
		writes: len(log),
		checks: []check{
			j.registered(), j.neverBare(), j.noneBoundWhileClosed(), j.bound(), j.noneEarly(), j.noneForgotten(),
			j.patchesMatchMoments(), j.noneNeedless(), j.quiet(),
		},
		latencies: j.latencies(),
		held:      j.held(),
	}
}

// judgement contains the data that the checks share.
type judgement struct {
	*expectation
	log    []write
	byName map[string]*nodeHistory
	nodes  []*nodeHistory // by name
}

// counted returns a check that passes if it has no faults.
func counted(name string, faults []string) check {
	return check{name: name, pass: len(faults) == 0, value: fmt.Sprint(len(faults)), faults: faults}
}

// registered prevents the other checks from passing because there are no nodes.
func (j *judgement) registered() check {
	var faults []string
	count := 0
	for _, name := range j.expectation.nodes {
		h := j.byName[name]
		switch {
		case h == nil || len(h.writes) == 0:
			faults = append(faults, name+" did not register")
			continue
		case h.refused != nil:
			faults = append(faults, fmt.Sprintf("%s was refused with status %d", name, h.refused.code))
		}
		count++
	}
	return check{
		name: "nodes that registered, none of them refused", pass: len(faults) == 0, faults: faults,
		value: fmt.Sprintf("%d of %d", count, len(j.expectation.nodes)),
	}
}

// neverBare checks that no response of the API server shows a node without the
// taint of a gate that had not been opened there.
func (j *judgement) neverBare() check {
	var faults []string
	for _, h := range j.nodes {
		for i := range h.gates {
			if g := &h.gates[i]; g.bare != nil {
				faults = append(faults, fmt.Sprintf("%s without taint %s of gate %s after a %s of %s by %s",
					h.name, g.taint.Key, g.name, g.bare.verb, g.bare.resource, g.bare.user))
				break
			}
		}
	}
	return counted("nodes ever visible without the taint of a closed gate", faults)
}

// noneBoundWhileClosed checks that no pod was bound to a node while a gate was
// closed whose taint the pod does not tolerate.
func (j *judgement) noneBoundWhileClosed() check {
	pods := j.pods()
	var faults []string
	for i := range j.log {
		w := &j.log[i]
		h := j.byName[w.boundToNode]
		if w.boundToNode == "" || w.dryRun || h == nil {
			continue
		}
		pod := pods[w.namespace+"/"+w.name]
		for k := range h.gates {
			// A pod without a create request in the log is assumed to tolerate
			// nothing.
			if g := &h.gates[k]; g.closedAt(w.received) && (pod == nil || !tolerates(pod, g.taint)) {
				faults = append(faults, fmt.Sprintf("%s/%s to %s, closed by gate %s, by %s", w.namespace, w.name, h.name, g.name, w.user))
				break
			}
		}
	}
	return counted("pods bound to a node while it was closed to them", faults)
}

// bound prevents the previous check from passing because there are no pods.
func (j *judgement) bound() check {
	pods := j.pods()
	count := 0
	for i := range j.log {
		w := &j.log[i]
		pod := pods[w.namespace+"/"+w.name]
		if w.boundToNode != "" && !w.dryRun && pod != nil &&
			!slices.ContainsFunc(j.gates, func(g gate) bool { return tolerates(pod, g.taint) }) {
			count++
		}
	}
	c := check{
		name: "workload pods bound by the scheduler", pass: count == j.workload,
		value: fmt.Sprintf("%d of %d", count, j.workload),
	}
	if !c.pass {
		c.faults = []string{fmt.Sprintf("%d pods that tolerate no gate were bound, and %d expected", count, j.workload)}
	}
	return c
}

// pods returns all pods that were created, by namespace and name.
func (j *judgement) pods() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for i := range j.log {
		if w := &j.log[i]; w.resource == "pods" && w.verb == "create" && w.pod != nil && !w.dryRun {
			out[w.namespace+"/"+w.name] = w.pod
		}
	}
	return out
}

// noneEarly checks that no gate was opened before its daemon was ready and the
// node was set up.
func (j *judgement) noneEarly() check {
	var faults []string
	j.eachGate(func(h *nodeHistory, g *gateHistory) {
		// The patch can follow a write before that write has been answered, but
		// not before the write itself.
		if m := h.moment(g); g.opened != nil && (m == nil || g.opened.received.Before(m.received)) {
			faults = append(faults, fmt.Sprintf("gate %s on %s", g.name, h.name))
		}
	})
	return counted("gates opened before their daemon was ready", faults)
}

// noneForgotten checks that every gate whose daemon became ready was opened.
func (j *judgement) noneForgotten() check {
	var faults []string
	j.eachGate(func(h *nodeHistory, g *gateHistory) {
		if g.opened == nil && h.moment(g) != nil {
			faults = append(faults, fmt.Sprintf("gate %s on %s", g.name, h.name))
		}
	})
	return counted("gates closed in the end although their daemon is ready", faults)
}

// patchesMatchMoments checks that each node was patched as often as there were
// distinct moments at which a gate could open on it. Two moments that are close
// together may be answered by one patch; one moment never by two.
func (j *judgement) patchesMatchMoments() check {
	var faults []string
	patches, moments := 0, 0
	nodes := map[int]int{} // by number of patches
	for _, h := range j.nodes {
		can, did := len(h.moments()), 0
		for _, patch := range h.patches {
			if h.opens(patch) {
				did++
			}
		}
		patches, moments = patches+did, moments+can
		nodes[did]++
		if did > can || did == 0 && can > 0 {
			faults = append(faults, fmt.Sprintf("%s: %d patches for %d moments", h.name, did, can))
		}
	}
	value := fmt.Sprintf("%d for %d moments (%s)", patches, moments, patchesPerNode(nodes))
	if n := j.refused(); n > 0 {
		value += fmt.Sprintf("; %d more refused, as somebody else was faster", n)
	}
	return check{
		name: "opening patches, at most one for each moment of a node", pass: len(faults) == 0, faults: faults, value: value,
	}
}

// patchesPerNode describes how many nodes were patched how often.
func patchesPerNode(nodes map[int]int) string {
	var words []string
	for _, patches := range slices.Sorted(maps.Keys(nodes)) {
		words = append(words, fmt.Sprintf("%d on %d nodes", patches, nodes[patches]))
	}
	return strings.Join(words, ", ")
}

// refused counts nodegate's writes of nodes that the API server rejected.
func (j *judgement) refused() int {
	count := 0
	for i := range j.log {
		if w := &j.log[i]; w.user == j.nodegate && w.resource == "nodes" && w.refused && !w.dryRun {
			count++
		}
	}
	return count
}

// noneNeedless checks that every write of a node by nodegate opened a gate.
func (j *judgement) noneNeedless() check {
	var faults []string
	for _, h := range j.nodes {
		for _, patch := range h.patches {
			if !h.opens(patch) {
				faults = append(faults, fmt.Sprintf("%s of %s at %s", patch.verb, h.name, patch.done.Format(time.TimeOnly)))
			}
		}
	}
	return counted("writes of nodes by nodegate that opened nothing", faults)
}

// quiet checks that nodegate wrote nothing while nothing changed and every node
// reported. Renewals of its Lease and dry runs are not counted.
func (j *judgement) quiet() check {
	var faults []string
	reporting := map[string]bool{}
	heartbeats := 0
	for i := range j.log {
		w := &j.log[i]
		switch {
		case !j.steady.contains(w.done) || w.dryRun:
		case w.resource == "nodes/status" && w.user == "system:node:"+w.name && !w.refused:
			reporting[w.name] = true
			heartbeats++
		case w.user == j.nodegate && w.resource != "coordination.k8s.io/leases":
			faults = append(faults, fmt.Sprintf("%s of %s %s at %s", w.verb, w.resource, w.name, w.done.Format(time.TimeOnly)))
		}
	}
	c := counted("writes by nodegate in a steady state", faults)
	c.value += fmt.Sprintf(" in %s with %d heartbeats", j.steady.to.Sub(j.steady.from).Round(100*time.Millisecond), heartbeats)
	for _, name := range j.expectation.nodes {
		if !reporting[name] {
			c.pass = false
			c.faults = append(c.faults, name+" did not report, so that the state was not steady")
		}
	}
	return c
}

func (j *judgement) latencies() []time.Duration {
	var out []time.Duration
	j.eachGate(func(h *nodeHistory, g *gateHistory) {
		if m := h.moment(g); m != nil && g.opened != nil {
			out = append(out, g.opened.done.Sub(m.done))
		}
	})
	slices.Sort(out)
	return out
}

func (j *judgement) held() []heldGate {
	var out []heldGate
	j.eachGate(func(h *nodeHistory, g *gateHistory) {
		if len(h.writes) > 0 && g.opened == nil {
			out = append(out, heldGate{node: h.name, gate: g.name})
		}
	})
	return out
}

func (j *judgement) eachGate(f func(*nodeHistory, *gateHistory)) {
	for _, h := range j.nodes {
		for i := range h.gates {
			f(h, &h.gates[i])
		}
	}
}

// percentile returns the nearest-rank percentile of sorted durations.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
