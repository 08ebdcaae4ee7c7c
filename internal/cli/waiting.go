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

// WaitResult is what 'kubectl gate wait' prints with -o json and -o yaml. Fields are
// added, and neither renamed nor given another meaning.
type WaitResult struct {
	// For is open or closed, and Gate the one gate that it is about, if it is one.
	For  string `json:"for"`
	Gate string `json:"gate,omitempty"`
	// Met tells whether all nodes were so at the same time.
	Met bool `json:"met"`
	// Nodes are how each stood at the end.
	Nodes []WaitedNode `json:"nodes"`
}

// WaitedNode is how a node stood.
type WaitedNode struct {
	Node string `json:"node"`
	Met  bool   `json:"met"`
	// Missing tells that there is no such node.
	Missing bool `json:"missing,omitempty"`
	// HeldBy are the gates that hold the node, or are about to.
	HeldBy []string `json:"heldBy,omitempty"`
}

// waiting is the state of a wait. It is pure: nodes come in, and the answer comes
// out.
type waiting struct {
	sight      *sight
	want, gate string
	// installed tells whether the API server knows NodeGates.
	installed bool
	// names are the nodes that are waited for, in order; empty for all that there are.
	names []string
	nodes map[string]waited
	// unmet are those of the nodes that are not as wanted.
	unmet map[string]bool
	begun bool
}

// waited is how a node stands.
type waited struct {
	records map[string]string
	heldBy  []string
}

func newWaiting(want, gateName string, names []string, declared []v1alpha1.NodeGate) *waiting {
	return &waiting{sight: compileBlind(declared), want: want, gate: gateName, names: names, installed: true}
}

// warning says why the gate that is waited for closes on no node, if so.
func (w *waiting) warning() string {
	g := w.sight.gate(w.gate)
	switch {
	case g == nil:
		return ""
	case !g.Accepted:
		return "is not in force: " + w.sight.refused[w.gate]
	case g.Mode == v1alpha1.ModeDryRun:
		return "is in dry run, and holds no node"
	}
	return ""
}

// begin starts with all nodes that there are.
func (w *waiting) begin(nodes map[string]*gate.Node) {
	w.begun, w.nodes, w.unmet = true, make(map[string]waited, len(nodes)), make(map[string]bool)
	for _, name := range w.names {
		w.unmet[name] = true
	}
	for name, n := range nodes {
		w.note(name, n)
	}
}

// note takes note of how a node has become; nil for gone.
func (w *waiting) note(name string, n *gate.Node) {
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
	stands, closed := w.stand(n)
	w.nodes[name] = stands
	if w.want == waitOpen && len(stands.heldBy) == 0 || w.want == waitClosed && closed {
		delete(w.unmet, name)
	} else {
		w.unmet[name] = true
	}
}

// stand says how a node stands, and whether one of the gates is closed on it already.
func (w *waiting) stand(n *gate.Node) (stands waited, closed bool) {
	w.sight.now = time.Now()
	stands.records = n.Records
	decision := w.sight.stand(n)
	for i := range decision.Verdicts {
		v := &decision.Verdicts[i]
		if v.DryRun || w.gate != "" && v.Gate != w.gate {
			continue
		}
		if v.Before == v1alpha1.StateClosed || v.After == v1alpha1.StateClosed {
			stands.heldBy = append(stands.heldBy, v.Gate)
		}
		closed = closed || v.Before == v1alpha1.StateClosed
	}
	slices.Sort(stands.heldBy)
	return stands, closed
}

// met tells whether all nodes are as wanted, and there are any.
func (w *waiting) met() bool { return w.begun && len(w.unmet) == 0 && len(w.nodes) > 0 }

// total is how many nodes are waited for.
func (w *waiting) total() int { return max(len(w.nodes), len(w.names)) }

// several is how many nodes are named in a line.
const several = 3

// progress says in a line how far it is.
func (w *waiting) progress() string {
	if w.total() == 0 {
		return "there is no such node yet"
	}
	text := fmt.Sprintf("%d of %d nodes are %s", w.total()-len(w.unmet), w.total(), w.want)
	if len(w.unmet) == 0 {
		return text
	}
	var named []string
	for i, name := range slices.Sorted(maps.Keys(w.unmet)) {
		if i == several {
			named = append(named, fmt.Sprintf("%d more", len(w.unmet)-several))
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

// text names the nodes that are as wanted.
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

// progressLine is the line of a terminal in which progress is told. Elsewhere
// nothing is. It may be used at the same time by several.
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

// lastError keeps the last error of several goroutines.
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
