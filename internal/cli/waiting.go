// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// WaitResult is the output of 'kubectl gate wait' with -o json and -o yaml. Fields may
// be added, but are neither renamed nor changed in meaning.
type WaitResult struct {
	// For is open or closed. Gate is the gate to wait for, or empty for all gates.
	For  string `json:"for"`
	Gate string `json:"gate,omitempty"`
	// Met is true if all nodes were in the desired state at the same time.
	Met bool `json:"met"`
	// Nodes are the nodes in their final state.
	Nodes []WaitedNode `json:"nodes"`
}

// WaitedNode is the state of a node.
type WaitedNode struct {
	Node string `json:"node"`
	Met  bool   `json:"met"`
	// Missing is true if the node does not exist.
	Missing bool `json:"missing,omitempty"`
	// HeldBy are the gates that hold the node or are about to.
	HeldBy []string `json:"heldBy,omitempty"`
}

// waiting is the state of a wait. It does no I/O.
type waiting struct {
	snapshot   *snapshot
	want, gate string
	// installed specifies whether the API server serves NodeGates.
	installed bool
	// names are the nodes to wait for, sorted. Empty for all nodes.
	names []string
	nodes map[string]waited
	// unmet are the nodes that are not in the desired state.
	unmet   map[string]bool
	started bool
}

// waited is the state of a node.
type waited struct {
	records map[string]string
	heldBy  []string
}

func newWaiting(want, gateName string, names []string, declared []v1alpha1.NodeGate) *waiting {
	return &waiting{snapshot: compileWithoutSignals(declared), want: want, gate: gateName, names: names, installed: true}
}

// warning returns the reason why the gate to wait for closes on no node, or "".
func (w *waiting) warning() string {
	g := w.snapshot.gate(w.gate)
	switch {
	case g == nil:
		return ""
	case !g.Accepted:
		return "is not in force: " + w.snapshot.rejected[w.gate]
	case g.Mode == v1alpha1.ModeDryRun:
		return "is in dry run and holds no nodes"
	}
	return ""
}

// start sets the initial set of nodes.
func (w *waiting) start(nodes map[string]*gate.Node) {
	w.started, w.nodes, w.unmet = true, make(map[string]waited, len(nodes)), make(map[string]bool)
	for _, name := range w.names {
		w.unmet[name] = true
	}
	for name, n := range nodes {
		w.update(name, n)
	}
}

// update sets the state of a node. A nil node has been deleted.
func (w *waiting) update(name string, n *gate.Node) {
	if _, named := slices.BinarySearch(w.names, name); len(w.names) > 0 && !named {
		return
	}
	if n == nil {
		delete(w.nodes, name)
		delete(w.unmet, name)
		if len(w.names) > 0 {
			w.unmet[name] = true
		}
		return
	}
	state, closed := w.nodeState(n)
	w.nodes[name] = state
	if w.want == waitOpen && len(state.heldBy) == 0 || w.want == waitClosed && closed {
		delete(w.unmet, name)
	} else {
		w.unmet[name] = true
	}
}

// nodeState returns the state of a node, and whether one of the gates is already
// closed on it.
func (w *waiting) nodeState(n *gate.Node) (state waited, closed bool) {
	w.snapshot.now = time.Now()
	state.records = n.Records
	decision := w.snapshot.decideFromRecords(n)
	for i := range decision.Verdicts {
		v := &decision.Verdicts[i]
		if v.DryRun || w.gate != "" && v.Gate != w.gate {
			continue
		}
		if v.Before == v1alpha1.StateClosed || v.After == v1alpha1.StateClosed {
			state.heldBy = append(state.heldBy, v.Gate)
		}
		closed = closed || v.Before == v1alpha1.StateClosed
	}
	slices.Sort(state.heldBy)
	return state, closed
}

// met reports whether there are nodes and all of them are in the desired state.
func (w *waiting) met() bool { return w.started && len(w.unmet) == 0 && len(w.nodes) > 0 }

// total returns the number of nodes to wait for.
func (w *waiting) total() int { return max(len(w.nodes), len(w.names)) }

// maxNamed is the maximum number of nodes that a progress line names.
const maxNamed = 3

// progress returns the progress as one line.
func (w *waiting) progress() string {
	if w.total() == 0 {
		return "no such node exists yet"
	}
	text := fmt.Sprintf("%d of %d nodes are %s", w.total()-len(w.unmet), w.total(), w.want)
	if len(w.unmet) == 0 {
		return text
	}
	var named []string
	for i, name := range slices.Sorted(maps.Keys(w.unmet)) {
		if i == maxNamed {
			named = append(named, fmt.Sprintf("%d more", len(w.unmet)-maxNamed))
			break
		}
		switch n, exists := w.nodes[name]; {
		case !exists:
			name += " (does not exist)"
		case len(n.heldBy) > 0:
			name += " (" + strings.Join(n.heldBy, ", ") + ")"
		}
		named = append(named, name)
	}
	return text + "; waiting for " + enumerate(named, "and")
}

func (w *waiting) result() *WaitResult {
	r := &WaitResult{For: w.want, Gate: w.gate, Met: w.met(), Nodes: []WaitedNode{}}
	for name, n := range w.nodes {
		r.Nodes = append(r.Nodes, WaitedNode{Node: name, Met: !w.unmet[name], HeldBy: n.heldBy})
	}
	for _, name := range w.names {
		if _, exists := w.nodes[name]; !exists {
			r.Nodes = append(r.Nodes, WaitedNode{Node: name, Missing: true})
		}
	}
	slices.SortFunc(r.Nodes, func(a, b WaitedNode) int { return strings.Compare(a.Node, b.Node) })
	return r
}

// text returns a line for each node that is in the desired state.
func (r *WaitResult) text(format string) string {
	var b strings.Builder
	for _, n := range r.Nodes {
		switch {
		case !n.Met:
		case format == formatName:
			fmt.Fprintf(&b, "node/%s\n", n.Node)
		case r.Gate != "":
			fmt.Fprintf(&b, "node/%s: gate %s is %s\n", n.Node, r.Gate, r.For)
		case r.For == waitOpen:
			fmt.Fprintf(&b, "node/%s: no gate holds it\n", n.Node)
		default:
			fmt.Fprintf(&b, "node/%s: held by %s\n", n.Node, enumerate(n.HeldBy, "and"))
		}
	}
	return b.String()
}

// progressLine shows progress in one line of a terminal. If the output is not a
// terminal, it shows nothing. It is safe for concurrent use.
type progressLine struct {
	mu   sync.Mutex
	out  io.Writer
	last string
}

func newProgressLine(out io.Writer) *progressLine {
	if !isTerminal(out) {
		out = nil
	}
	return &progressLine{out: out}
}

func (l *progressLine) show(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil || text == l.last {
		return
	}
	l.last = text
	fmt.Fprint(l.out, "\r\x1b[K"+text)
}

func (l *progressLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != "" {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	l.last = ""
}

// lastError holds the last error of several goroutines.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
