// SPDX-License-Identifier: Apache-2.0

// Package pending explains which gates keep a pod off which nodes, which of these nodes
// would fit the pod if the gates were open, and what the gates wait for. It does no I/O.
package pending

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/report"
)

// Facts are what an explanation is based on.
type Facts struct {
	// Object is the pod, or the object that creates it, in the form KIND NAMESPACE/NAME.
	Object string
	// Pod is the pod, or a pod as the object creates it.
	Pod *corev1.Pod
	// Rejected is the reason why the API server rejects the pods that the object creates, or "".
	Rejected string
	// Nodes are all nodes.
	Nodes []Node
	Gates *gateset.Set
	// Usual contains, by gate, how long after the creation of nodes it opened.
	Usual map[string]report.Spread
	// Unread lists the read errors.
	Unread []string
	// Now is the time of the decisions.
	Now time.Time
}

// Node is a node and what is used of it.
type Node struct {
	*corev1.Node
	// Facts contains the facts from which gates are decided.
	Facts gate.Facts
	// Requested contains the resources that the node's pods request, with "pods" for their
	// number. It is nil if pods could not be read.
	Requested corev1.ResourceList
}

// Of returns the explanation.
func Of(f *Facts) *Explanation {
	e := &Explanation{
		Object: f.Object, Time: f.Now.UTC(), Node: f.Pod.Spec.NodeName, Nodes: len(f.Nodes),
		Gates: []Gate{}, Others: []Other{}, Unread: f.Unread, Rejected: f.Rejected,
	}
	if e.Rejected != "" {
		return e
	}
	if e.Node != "" {
		e.Rejection = rejectionOf(f.Pod)
		return e
	}
	for _, g := range f.Pod.Spec.SchedulingGates {
		e.SchedulingGates = append(e.SchedulingGates, g.Name)
	}
	c := &count{Explanation: e, gates: map[string]*Gate{}, others: map[string]int{}, temporary: map[string]int{}}
	filter, types := newFilter(f.Pod), make(types)
	candidates := make([]candidate, 0, len(f.Nodes))
	for i := range f.Nodes {
		n := f.candidate(filter, &f.Nodes[i])
		if candidates = append(candidates, n); len(n.holding) == 0 && n.node.settled(f.Now) {
			types.add(n.node)
		}
	}
	for i := range candidates {
		candidates[i].types = types
		c.add(filter, &candidates[i])
	}
	c.done(f)
	return e
}

// rejectionOf returns how a kubelet rejected a pod because its node was not ready for it, such
// as devices of the node that had not registered. It returns nil if none did.
func rejectionOf(pod *corev1.Pod) *Rejection {
	r := &gate.Rejection{Reason: pod.Status.Reason}
	if pod.Status.Phase != corev1.PodFailed || !r.AttributableTo(v1alpha1.Taint{Effect: corev1.TaintEffectNoExecute}) {
		return nil
	}
	e := &Rejection{Reason: r.Reason, Message: pod.Status.Message}
	if c := metav1.GetControllerOf(pod); c != nil {
		e.Controller = c.Kind + " " + c.Name
	}
	return e
}

// count sums up the explanation over the nodes.
type count struct {
	*Explanation
	gates             map[string]*Gate
	others, temporary map[string]int
}

// candidate is a node with the taints that keep the pod off and belong to no gate.
type candidate struct {
	setup
	taints []corev1.Taint
}

func (f *Facts) candidate(filter *filter, n *Node) candidate {
	c := candidate{setup: setup{facts: f, node: n}, taints: filter.untolerated(n)}
	if len(c.taints) > 0 {
		c.holding, c.taints = f.holding(n, c.taints)
	}
	return c
}

// add adds a node.
func (c *count) add(filter *filter, n *candidate) {
	other, temporary := filter.obstacles(n.node, n.taints, &n.setup)
	switch {
	case other == "" && len(n.holding) == 0:
		c.Fit = append(c.Fit, n.node.Name)
		return
	case other == "":
		c.WouldFit++
	default:
		c.others[other]++
	}
	for _, message := range temporary {
		c.temporary[message]++
	}
	if len(n.holding) > 0 {
		c.KeptOff++
	}
	for i := range n.holding {
		g := c.gate(&n.holding[i])
		if other != "" {
			g.Others++
			continue
		}
		g.Nodes = append(g.Nodes, Held{Node: n.node.Name, Since: n.holding[i].Since})
		g.wait(&n.holding[i])
	}
}

// holding returns the gates whose taints are among the taints of a node, and the other taints.
func (f *Facts) holding(n *Node, taints []corev1.Taint) (gates []explain.Gate, others []corev1.Taint) {
	decision := f.Gates.Decide(&n.Facts, f.Now)
	all := explain.Of(&explain.Facts{Gates: f.Gates, Node: n.Facts, Decision: decision, Now: f.Now}).Gates
	others = taints
	for i := range all {
		g := &all[i]
		if g.DryRun || g.State != v1alpha1.StateClosed && g.Becomes != v1alpha1.StateClosed {
			continue
		}
		own := func(t corev1.Taint) bool { return n.has(g, &t) }
		if slices.ContainsFunc(taints, own) {
			gates, others = append(gates, *g), slices.DeleteFunc(slices.Clone(others), own)
		}
	}
	return gates, others
}

// has reports whether a taint of the node is that of a gate: the one in its record, or the one
// with which it will be. The values may differ, because a gate adopts a taint with any value.
func (n *Node) has(g *explain.Gate, taint *corev1.Taint) bool {
	r, _ := gate.ParseRecord(n.Facts.Node.Records[g.Gate])
	return slices.ContainsFunc([]string{r.Taint, g.Taint}, func(text string) bool {
		body, effect, _ := strings.Cut(text, ":")
		key, _, _ := strings.Cut(body, "=")
		return key == taint.Key && effect == string(taint.Effect)
	})
}

// gate returns what is known of a gate, and adds the gate if it is new.
func (c *count) gate(g *explain.Gate) *Gate {
	known := c.gates[g.Gate]
	if known == nil {
		known = &Gate{Gate: g.Gate, Taint: g.Taint, Nodes: []Held{}, WaitsFor: []Wait{}}
		c.gates[g.Gate] = known
	}
	return known
}

// wait counts what the gate waits for on a node.
func (g *Gate) wait(on *explain.Gate) {
	for _, w := range waits(on) {
		i := slices.IndexFunc(g.WaitsFor, func(known Wait) bool { return known.isLike(&w) })
		if i < 0 {
			g.WaitsFor = append(g.WaitsFor, w)
			continue
		}
		g.WaitsFor[i].Nodes++
	}
}

// isLike reports whether two waits are for the same cause. Their messages may name different
// pods, for example.
func (w *Wait) isLike(other *Wait) bool {
	return w.Signal == other.Signal && w.Reason == other.Reason && (w.Reason != "" || w.Message == other.Message)
}

// waits returns what a closed gate waits for on a node.
func waits(g *explain.Gate) (all []Wait) {
	if g.Becomes == v1alpha1.StateOpen {
		return []Wait{{Message: "the controller, which is about to open the gate", Nodes: 1}}
	}
	if g.Override != nil && !g.Override.Until.IsZero() { // else the gate keeps its state: the obstacle says why
		return []Wait{{Message: "the end of an override (" + g.Override.Reason + ")", Nodes: 1}}
	}
	if g.Obstacle != nil {
		return []Wait{{Reason: g.Obstacle.Reason, Message: g.Obstacle.Message, Nodes: 1}}
	}
	for _, s := range g.Awaited() {
		all = append(all, Wait{Signal: s.Name, Reason: s.Reason, Message: s.Message, Nodes: 1})
	}
	if len(all) == 0 && g.Next != "" { // such as for a gate from a file
		all = append(all, Wait{Message: g.Next, Nodes: 1})
	}
	return all
}

// done sorts the explanation and completes it.
func (c *count) done(f *Facts) {
	for _, name := range slices.Sorted(maps.Keys(c.gates)) {
		g := c.gates[name]
		slices.SortFunc(g.Nodes, func(a, b Held) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
		slices.SortFunc(g.WaitsFor, func(a, b Wait) int { return cmp.Or(-cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Signal, b.Signal)) })
		if usual := f.Usual[name]; usual.Count > 0 {
			g.Usually = &usual
		}
		c.Gates = append(c.Gates, *g)
	}
	slices.SortStableFunc(c.Gates, func(a, b Gate) int { return -cmp.Compare(len(a.Nodes), len(b.Nodes)) })
	c.Others, c.Temporary = sorted(c.others), sorted(c.temporary)
	slices.Sort(c.Fit)
}

// sorted returns reasons, most frequent first.
func sorted(nodes map[string]int) []Other {
	all := make([]Other, 0, len(nodes))
	for _, message := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, Other{Message: message, Nodes: nodes[message]})
	}
	slices.SortStableFunc(all, func(a, b Other) int { return -cmp.Compare(a.Nodes, b.Nodes) })
	return all
}
