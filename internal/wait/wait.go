// SPDX-License-Identifier: Apache-2.0

// Package wait determines when nodes are open or closed, from the Node objects alone, which
// a caller reads and watches. It does no I/O.
package wait

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
)

// Desired states.
const (
	Open   = "open"
	Closed = "closed"
)

// Result is the output of 'kubectl gate wait' with -o json and -o yaml. Fields may
// be added, but are neither renamed nor changed in meaning.
type Result struct {
	// For is open or closed. Gate is the gate to wait for, or empty for all gates.
	For  string `json:"for"`
	Gate string `json:"gate,omitempty"`
	// Met is true if all nodes were in the desired state at the same time.
	Met bool `json:"met"`
	// Nodes are the nodes in their final state.
	Nodes []Node `json:"nodes"`
}

// Node is the state of a node.
type Node struct {
	Node string `json:"node"`
	Met  bool   `json:"met"`
	// Missing is true if the node does not exist.
	Missing bool `json:"missing,omitempty"`
	// HeldBy are the gates that hold the node or are about to. A gate with the effect
	// PreferNoSchedule, which holds no node, is included only if it is the gate to wait for.
	HeldBy []string `json:"heldBy,omitempty"`
}

// Tracker tracks which nodes are in the desired state.
type Tracker struct {
	gates      *gateset.Set
	want, gate string
	// names are the nodes to wait for, sorted. Empty for all nodes.
	names []string
	nodes map[string]state
	// unmet are the nodes that are not in the desired state.
	unmet   map[string]bool
	started bool
}

// state is the state of a node.
type state struct {
	records map[string]string
	heldBy  []string
}

// New returns a Tracker for nodes with these sorted names, or for all nodes if there are
// no names. want is Open or Closed. If gateName is empty, all gates count.
func New(want, gateName string, names []string, gates *gateset.Set) *Tracker {
	return &Tracker{gates: gates.WithoutSignals(), want: want, gate: gateName, names: names}
}

// Warning returns the reason why the gate to wait for closes on no node, or "".
func (t *Tracker) Warning() string {
	g, declared := t.gates.Gate(t.gate)
	switch {
	case !declared:
		return ""
	case !g.Accepted:
		return "is not in force: " + t.gates.Rejection(t.gate)
	case g.Mode == v1alpha1.ModeDryRun:
		return "is in dry run and holds no nodes"
	}
	return ""
}

// Start sets the initial set of nodes, by name.
func (t *Tracker) Start(nodes map[string]*gate.Node, now time.Time) {
	t.started, t.nodes, t.unmet = true, make(map[string]state, len(nodes)), make(map[string]bool)
	for _, name := range t.names {
		t.unmet[name] = true
	}
	for name, n := range nodes {
		t.Update(name, n, now)
	}
}

// Update sets the state of a node. A nil node has been deleted.
func (t *Tracker) Update(name string, n *gate.Node, now time.Time) {
	if _, named := slices.BinarySearch(t.names, name); len(t.names) > 0 && !named {
		return
	}
	if n == nil {
		delete(t.nodes, name)
		delete(t.unmet, name)
		if len(t.names) > 0 {
			t.unmet[name] = true
		}
		return
	}
	node, closed := t.nodeState(n, now)
	t.nodes[name] = node
	if t.want == Open && len(node.heldBy) == 0 || t.want == Closed && closed {
		delete(t.unmet, name)
	} else {
		t.unmet[name] = true
	}
}

// nodeState returns the state of a node, and whether one of the gates is already
// closed on it.
func (t *Tracker) nodeState(n *gate.Node, now time.Time) (node state, closed bool) {
	node.records = n.Records
	decision := t.gates.DecideNode(n, now)
	for i := range decision.Verdicts {
		v := &decision.Verdicts[i]
		g, _ := t.gates.Gate(v.Gate)
		if v.DryRun || t.gate != "" && v.Gate != t.gate || t.gate == "" && gate.IsSoft(v.TaintOn(n, &decision, g)) {
			continue
		}
		holds := v.Before == v1alpha1.StateClosed || v.TaintLeft(n, &decision, g) != ""
		if holds || v.After == v1alpha1.StateClosed {
			node.heldBy = append(node.heldBy, v.Gate)
		}
		closed = closed || holds
	}
	slices.Sort(node.heldBy)
	return node, closed
}

// Met reports whether there are nodes and all of them are in the desired state.
func (t *Tracker) Met() bool { return t.started && len(t.unmet) == 0 && t.AllExist() }

// Started reports whether the nodes have been read.
func (t *Tracker) Started() bool { return t.started }

// AllExist reports whether all named nodes exist. If none are named, one node is enough.
func (t *Tracker) AllExist() bool { return len(t.nodes) > 0 && len(t.nodes) >= len(t.names) }

// NoRecords reports whether none of the nodes has a gate record.
func (t *Tracker) NoRecords() bool {
	for _, n := range t.nodes {
		if len(n.records) > 0 {
			return false
		}
	}
	return true
}

// Gates returns the sorted names of the declared gates and of those that have a record on
// any of the nodes.
func (t *Tracker) Gates() []string {
	known := make(map[string]bool)
	for name := range t.gates.Declared {
		known[name] = true
	}
	for _, n := range t.nodes {
		for name := range n.records {
			known[name] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// total returns the number of nodes to wait for.
func (t *Tracker) total() int { return max(len(t.nodes), len(t.names)) }

// maxNamed is the maximum number of nodes that a progress line names.
const maxNamed = 3

// Progress returns the progress as one line.
func (t *Tracker) Progress() string {
	if t.total() == 0 {
		return "no such node exists yet"
	}
	text := fmt.Sprintf("%d of %d nodes are %s", t.total()-len(t.unmet), t.total(), t.want)
	if len(t.unmet) == 0 {
		return text
	}
	var named []string
	for i, name := range slices.Sorted(maps.Keys(t.unmet)) {
		if i == maxNamed {
			named = append(named, fmt.Sprintf("%d more", len(t.unmet)-maxNamed))
			break
		}
		switch n, exists := t.nodes[name]; {
		case !exists:
			name += " (does not exist)"
		case len(n.heldBy) > 0:
			name += " (" + strings.Join(n.heldBy, ", ") + ")"
		}
		named = append(named, name)
	}
	return text + "; waiting for " + printer.Enumerate(named, "and")
}

// Result returns the current state of all nodes.
func (t *Tracker) Result() *Result {
	r := &Result{For: t.want, Gate: t.gate, Met: t.Met(), Nodes: []Node{}}
	for name, n := range t.nodes {
		r.Nodes = append(r.Nodes, Node{Node: name, Met: !t.unmet[name], HeldBy: n.heldBy})
	}
	for _, name := range t.names {
		if _, exists := t.nodes[name]; !exists {
			r.Nodes = append(r.Nodes, Node{Node: name, Missing: true})
		}
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return strings.Compare(a.Node, b.Node) })
	return r
}

// Text returns a line for each node that is in the desired state.
func (r *Result) Text() string {
	var b strings.Builder
	for _, n := range r.Nodes {
		switch {
		case !n.Met:
		case r.Gate != "":
			fmt.Fprintf(&b, "node/%s: gate %s is %s\n", n.Node, r.Gate, r.For)
		case r.For == Open:
			fmt.Fprintf(&b, "node/%s: no gate holds it\n", n.Node)
		default:
			fmt.Fprintf(&b, "node/%s: held by %s\n", n.Node, printer.Enumerate(n.HeldBy, "and"))
		}
	}
	return b.String()
}

// Names returns the nodes that are in the desired state, in the form that kubectl prints.
func (r *Result) Names() string {
	var b strings.Builder
	for _, n := range r.Nodes {
		if n.Met {
			fmt.Fprintf(&b, "node/%s\n", n.Node)
		}
	}
	return b.String()
}
