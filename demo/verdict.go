// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster"
)

// An expectation contains the facts about a run that its history does not contain.
type expectation struct {
	nodegate string // nodegate's user
	gates    []gate
	nodes    int // nodes that were to register
	workload int // pods that were to be bound
}

// A check is one line of the verdict.
type check struct {
	name   string
	value  string
	faults []string // why the check fails; empty if it passes
}

// A summary contains the figures that the demo prints. It computes them from etcd's
// revisions and the audit log, not from nodegate's reports or the demo's observations.
type summary struct {
	checks    []check
	latencies []time.Duration // from the moment at which a gate could open to its opening, sorted
	held      []heldGate
}

// A heldGate is a gate that is still closed on a node at the end.
type heldGate struct{ node, gate string }

func (s *summary) pass() bool {
	return !slices.ContainsFunc(s.checks, func(c check) bool { return len(c.faults) > 0 })
}

func (s *summary) add(name, value string, faults []string) {
	s.checks = append(s.checks, check{name, value, faults})
}

// count adds a check whose value is the number of its faults.
func (s *summary) count(name string, faults []string) { s.add(name, fmt.Sprint(len(faults)), faults) }

// A nodeHistory is the history of a node.
type nodeHistory struct {
	name     string
	versions []revisions.Version
	setUp    int64 // the first revision in which the node was set up, 0 if there is none
	gates    []gateHistory
}

// A gateHistory is the history of a gate on a node: the first revisions of events, 0 if
// there is none.
type gateHistory struct {
	gate
	bare   int64 // the node is visible without the taint, and the gate is not open
	opened int64 // the node is visible without the taint, and the gate is open
	ready  int64 // the gate's daemon is ready
}

// moment returns the revision from which the gate could open, 0 if there is none.
func (h *nodeHistory) moment(g *gateHistory) int64 {
	if g.ready == 0 || h.setUp == 0 {
		return 0
	}
	return max(g.ready, h.setUp)
}

// at returns the Node at a revision, or nil.
func (h *nodeHistory) at(revision int64) (node *corev1.Node) {
	for _, v := range h.versions {
		if v.Revision <= revision {
			node, _ = v.Object.(*corev1.Node)
		}
	}
	return node
}

func (e *expectation) readNode(versions []revisions.Version) *nodeHistory {
	h := &nodeHistory{name: versions[0].Name, versions: versions}
	for _, g := range e.gates {
		h.gates = append(h.gates, gateHistory{gate: g})
	}
	for _, v := range versions {
		node, ok := v.Object.(*corev1.Node)
		if !ok {
			continue
		}
		if h.setUp == 0 && !hasTaint(node, setUpTaint) {
			h.setUp = v.Revision
		}
		for i := range h.gates {
			switch g := &h.gates[i]; {
			case g.opened > 0 || hasTaint(node, g.taint):
			case isOpen(node, g.name):
				g.opened = v.Revision
			case g.bare == 0:
				g.bare = v.Revision
			}
		}
	}
	return h
}

// isOpen reports whether the gate's record on the node is open.
func isOpen(node *corev1.Node, gate string) bool {
	var record struct{ State string }
	err := json.Unmarshal([]byte(node.Annotations[v1alpha1.RecordAnnotationPrefix+gate]), &record)
	return err == nil && record.State == v1alpha1.StateOpen
}

func hasTaint(n *corev1.Node, taint corev1.Taint) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}

// summarize computes the summary of a run.
func summarize(h *revisions.History, e *expectation) *summary {
	s := &summary{}
	nodes := make(map[string]*nodeHistory)
	for _, versions := range h.Versions(revisions.KindNode) {
		nodes[versions[0].Name] = e.readNode(versions)
	}
	boundEarly, bound := e.readPods(h.Versions(revisions.KindPod), nodes)
	var sorted []*nodeHistory
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		sorted = append(sorted, nodes[name])
	}
	s.add("nodes that registered", fmt.Sprintf("%d of %d", len(nodes), e.nodes), missing("nodes", len(nodes), e.nodes))
	s.addBare(sorted)
	s.count("pods bound to a node while it was closed to them", boundEarly)
	s.add("workload pods bound by the scheduler", fmt.Sprintf("%d of %d", bound, e.workload), missing("pods", bound, e.workload))
	s.addPatches(h, e, sorted)
	s.addLatencies(h, sorted)
	return s
}

func missing(what string, got, want int) []string {
	if got == want {
		return nil
	}
	return []string{fmt.Sprintf("%d %s, expected %d", got, what, want)}
}

// readPods stores in nodes when their daemons became ready. It returns the pods that
// were bound while a gate was closed to them, and the number of workload pods that were
// bound.
func (e *expectation) readPods(pods [][]revisions.Version, nodes map[string]*nodeHistory) (boundEarly []string, bound int) {
	for _, versions := range pods {
		isBound := false
		for _, v := range versions {
			pod, ok := v.Object.(*corev1.Pod)
			if !ok || nodes[pod.Spec.NodeName] == nil {
				continue
			}
			h := nodes[pod.Spec.NodeName]
			if !isBound {
				isBound = true
				if pod.Namespace == metav1.NamespaceDefault {
					bound++
				}
				if gate := h.closedTo(pod, v.Revision); gate != "" {
					boundEarly = append(boundEarly, fmt.Sprintf("%s/%s to %s, closed by gate %s", pod.Namespace, pod.Name, h.name, gate))
				}
			}
			if isReady(pod) {
				h.daemonReady(pod, v.Revision)
			}
		}
	}
	return boundEarly, bound
}

// closedTo returns a gate whose taint is on the node at a revision, and which the pod
// does not tolerate, or "".
func (h *nodeHistory) closedTo(pod *corev1.Pod, revision int64) string {
	for i := range h.gates {
		taint := h.gates[i].taint
		if node := h.at(revision); node != nil && hasTaint(node, taint) && !tolerates(pod.Spec.Tolerations, taint) {
			return h.gates[i].name
		}
	}
	return ""
}

func tolerates(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	const comparisonOperators = false // alpha: Lt and Gt in tolerations
	return schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), tolerations, &taint, comparisonOperators)
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (h *nodeHistory) daemonReady(pod *corev1.Pod, revision int64) {
	for i := range h.gates {
		if g := &h.gates[i]; (g.ready == 0 || revision < g.ready) && pod.Namespace == g.daemonSet.Namespace && daemonOf(pod) == g.daemonSet.Name {
			g.ready = revision
		}
	}
}

// addBare adds the check that no revision shows a node without the taint of a gate that
// is not open.
func (s *summary) addBare(nodes []*nodeHistory) {
	var faults []string
	for _, h := range nodes {
		for i := range h.gates {
			if g := &h.gates[i]; g.bare > 0 {
				faults = append(faults, fmt.Sprintf("%s without taint %s of gate %s in revision %d", h.name, g.taint.Key, g.name, g.bare))
				break
			}
		}
	}
	s.count("nodes ever visible without the taint of a closed gate", faults)
}

// addPatches adds the checks that nodegate patches a node only to open gates, and at
// most once for each moment at which gates could open. Two moments that are close
// together may be answered by one patch.
func (s *summary) addPatches(h *revisions.History, e *expectation, nodes []*nodeHistory) {
	var excess, needless []string
	moments, patches := 0, 0
	nodesBy := make(map[int]int) // by the number of patches
	for _, n := range nodes {
		could, did := make(map[int64]bool), make(map[int64]bool)
		for i := range n.gates {
			could[n.moment(&n.gates[i])], did[n.gates[i].opened] = true, true
		}
		delete(could, 0)
		delete(did, 0)
		for _, v := range n.versions {
			if w, _ := h.Write(v.Revision); w.User == e.nodegate && !did[v.Revision] {
				needless = append(needless, fmt.Sprintf("%s of %s in revision %d", w.Verb, n.name, v.Revision))
			}
		}
		moments, patches = moments+len(could), patches+len(did)
		nodesBy[len(did)]++
		if len(did) > len(could) {
			excess = append(excess, fmt.Sprintf("%s: %d patches for %d moments", n.name, len(did), len(could)))
		}
	}
	var perNode []string
	for _, count := range slices.Sorted(maps.Keys(nodesBy)) {
		perNode = append(perNode, fmt.Sprintf("%d on %d nodes", count, nodesBy[count]))
	}
	s.add("opening patches, at most one for each moment of a node",
		fmt.Sprintf("%d for %d moments (%s)", patches, moments, strings.Join(perNode, ", ")), excess)
	s.count("writes of nodes by nodegate that opened nothing", needless)
}

// addLatencies adds the latencies of openings, and the gates that are still closed.
func (s *summary) addLatencies(h *revisions.History, nodes []*nodeHistory) {
	for _, n := range nodes {
		for i := range n.gates {
			g := &n.gates[i]
			if g.opened == 0 {
				s.held = append(s.held, heldGate{n.name, g.name})
				continue
			}
			from, known := h.Write(n.moment(g))
			to, knownToo := h.Write(g.opened)
			if known && knownToo {
				s.latencies = append(s.latencies, to.Done.Sub(from.Done))
			}
		}
	}
	slices.Sort(s.latencies)
}

// addRules adds the check that the judge finds no violation. No gate recloses in the
// demo, so RuleClosing does not apply.
func (s *summary) addRules(v *judge.Verdict) {
	var faults []string
	for _, violation := range v.Violations {
		faults = append(faults, violation.String())
	}
	checks := 0
	for _, rule := range judge.Rules() {
		for _, n := range v.Checked[rule] {
			checks += n
		}
		if len(v.Checked[rule]) == 0 && rule != judge.RuleClosing {
			faults = append(faults, fmt.Sprintf("nothing was checked under rule %s", rule))
		}
	}
	s.add("violations of the rules in docs/reliability.md", fmt.Sprintf("%d in %d checks", len(v.Violations), checks), faults)
}

// A period is a time interval.
type period struct{ from, to time.Time }

// addSteady adds the check that nodegate wrote nothing while nothing changed and every
// node reported. Renewals of its Lease and dry runs are not counted.
func (s *summary) addSteady(auditLog string, e *expectation, steady period) error {
	var faults []string
	heartbeats := 0
	err := testcluster.ReadAuditFile(auditLog, 0, func(event *auditv1.Event) error {
		at, ref := event.StageTimestamp.Time, event.ObjectRef
		isWrite := slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, event.Verb)
		switch {
		case !isWrite || ref == nil || testcluster.IsDryRun(event) || at.Before(steady.from) || at.After(steady.to):
		case ref.Resource == "nodes" && event.User.Username == "system:node:"+ref.Name:
			heartbeats++
		case event.User.Username == e.nodegate && ref.Resource != "leases":
			faults = append(faults, fmt.Sprintf("%s of %s %s at %s", event.Verb, ref.Resource, ref.Name, at.Format(time.TimeOnly)))
		}
		return nil
	})
	value := fmt.Sprintf("%d in %s with %d heartbeats", len(faults), steady.to.Sub(steady.from).Round(100*time.Millisecond), heartbeats)
	if heartbeats < e.nodes {
		faults = append(faults, "not every node reported")
	}
	s.add("writes by nodegate in a steady state", value, faults)
	return err
}
