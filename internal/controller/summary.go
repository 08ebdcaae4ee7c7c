// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// waitingMax bounds the list of waiting nodes in a gate's status.
const waitingMax = 10

// summary is what a gate's status tells of its nodes.
type summary struct {
	counts v1alpha1.NodeCounts
	// waitsFor counts closed nodes by the signal that they wait for, empty for none.
	waitsFor map[string]int
	// waiting are the longest waiting nodes, longest first.
	waiting                      []v1alpha1.WaitingNode
	throttled, contended, denied few
	// lost is because of which signal each of the first throttled nodes is to be
	// closed.
	lost string
	// outside are selected nodes that are not members.
	outside few
	// doubtful are nodes on which it is unknown whether the gate should close, and
	// doubt is why on the first of them.
	doubtful few
	doubt    string
	// overridden are nodes on which a person has the gate open or closed, and
	// ignored are those on which that is not followed, for the first as said.
	overridden, ignored few
	ignoredWhy          string
	// overdue are closed nodes past the deadline, overdueFor is what the first of
	// them waits for, and lapsed are nodes that the deadline opened.
	overdue, lapsed few
	overdueFor      string
	// denial is what the API server said about the first of the denied.
	denial string
}

// named tells whether a summary may name a node on which the gate stands so.
func (s *standing) named() bool {
	return s.state == v1alpha1.StateClosed || s.outside() || s.throttled || s.contended || s.doubt != "" ||
		s.denied != "" || s.lapsed() || s.override != "" || s.ignored != ""
}

// outside tells whether the node is selected and no member.
func (s *standing) outside() bool { return s.selected && s.state == "" }

// summary sums a gate up. What it returns is shared and read only.
func (t *tally) summary(gateName string) *summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.gates[gateName]
	if !ok {
		return &summary{}
	}
	if g.summary == nil {
		t.sumUp()
	}
	return g.summary
}

// sumUp sums up all gates of which something has changed. To count nodes takes no
// look at any; to name some takes one at each, for all gates together.
func (t *tally) sumUp() {
	namers := make(map[*gateTally]*namer)
	for _, g := range t.gates {
		if g.summary != nil {
			continue
		}
		g.summary = g.counted()
		if g.namesNodes() {
			namers[g] = &namer{summary: g.summary}
		}
	}
	if len(namers) == 0 {
		return
	}
	for node, n := range t.nodes {
		for i := range n.stands {
			if s := &n.stands[i]; s.shape.named {
				if namer := namers[s.shape.gate]; namer != nil {
					namer.add(node, s)
				}
			}
		}
	}
	for g, namer := range namers {
		namer.tell(func(node string) standing { return t.nodes[node].under(g).standing() })
	}
}

// counted is a summary that names no node yet.
func (g *gateTally) counted() *summary {
	out := &summary{waitsFor: make(map[string]int)}
	for _, s := range g.shapes {
		if s.standing.selected {
			out.counts.Selected += int32(s.nodes)
		}
		switch s.standing.state {
		case v1alpha1.StateOpen:
			out.counts.Open += int32(s.nodes)
		case v1alpha1.StateClosed:
			out.counts.Closed += int32(s.nodes)
			out.waitsFor[s.standing.signal] += s.nodes
		}
	}
	return out
}

func (g *gateTally) namesNodes() bool {
	for _, s := range g.shapes {
		if s.named {
			return true
		}
	}
	return false
}

// namer finds the nodes that a summary names.
type namer struct {
	*summary
	longest []waiter
}

// waiter is a closed node.
type waiter struct {
	node  string
	since int64
}

func (n *namer) add(node string, at *stand) {
	s := &at.shape.standing
	if s.state == v1alpha1.StateClosed {
		n.longest = insert(n.longest, waiter{node, at.since}, waitingMax, func(a, b waiter) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.node, b.node))
		})
	}
	n.outside.addIf(s.outside(), node)
	n.throttled.addIf(s.throttled, node)
	n.contended.addIf(s.contended, node)
	n.doubtful.addIf(s.doubt != "", node)
	n.denied.addIf(s.denied != "", node)
	n.overdue.addIf(s.overdue && s.state == v1alpha1.StateClosed, node)
	n.lapsed.addIf(s.lapsed(), node)
	n.overridden.addIf(s.override != "", node)
	n.ignored.addIf(s.ignored != "", node)
}

// tell says what there is to say of the nodes that were found.
func (n *namer) tell(on func(node string) standing) {
	n.counts.Overdue, n.counts.Overridden = int32(n.overdue.count), int32(n.overridden.count)
	if n.overdue.count > 0 {
		first := waiting(n.overdue.first[0], on(n.overdue.first[0]))
		n.overdueFor = fmt.Sprintf("%s waits for signal %s: %s", first.Node, cmp.Or(first.Signal, "-"), first.Message)
	}
	n.lost = lost(on, n.throttled.first)
	for _, w := range n.longest {
		n.waiting = append(n.waiting, waiting(w.node, on(w.node)))
	}
	if n.denied.count > 0 {
		n.denial = on(n.denied.first[0]).denied
	}
	if n.ignored.count > 0 {
		n.ignoredWhy = on(n.ignored.first[0]).ignored
	}
	if n.doubtful.count > 0 {
		n.doubt = on(n.doubtful.first[0]).doubt
	}
}

// lost tells because of which signals these nodes are to be closed.
func lost(on func(node string) standing, throttled []string) string {
	var all []string
	for _, node := range throttled {
		if s := on(node); s.signal != "" {
			all = append(all, fmt.Sprintf("%s: signal %s: %s", node, s.signal, clip(s.reading.Message(), 512)))
		}
	}
	return strings.Join(all, "; ")
}

func waiting(node string, s standing) v1alpha1.WaitingNode {
	reading := s.reading
	if s.blocked.Reason != "" {
		reading = s.blocked
	}
	return v1alpha1.WaitingNode{
		Node: node, Since: metav1.NewTime(s.since.Truncate(time.Second)), Signal: s.signal,
		Reason: string(reading.Reason), Message: clip(reading.Message(), 512),
	}
}

// insert puts something in its place in a sorted list of at most so many.
func insert[T any](sorted []T, one T, most int, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(sorted, one, compare)
	if i >= most {
		return sorted
	}
	sorted = slices.Insert(sorted, i, one)
	return sorted[:min(len(sorted), most)]
}

// few counts names and remembers the first few of them: what is told of a
// fleet is of constant size.
type few struct {
	count int
	first []string
	// most is how many are remembered. Default: fewMax.
	most int
}

const fewMax = 3

func (f *few) addIf(yes bool, name string) {
	if yes {
		f.count++
		f.first = insert(f.first, name, cmp.Or(f.most, fewMax), cmp.Compare)
	}
}

func fewOf(names []string) few {
	var f few
	for _, name := range names {
		f.addIf(true, name)
	}
	return f
}

// clip shortens a text to so many bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = "..."
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// String names them, or some and how many more there are.
func (f few) String() string {
	names := strings.Join(f.first, ", ")
	if more := f.count - len(f.first); more > 0 {
		return fmt.Sprintf("%s and %d more", names, more)
	}
	return names
}
