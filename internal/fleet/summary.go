// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// WaitingMax is the maximum number of waiting nodes in a gate's status.
const WaitingMax = 10

// Summary is the information about a gate's nodes in its status.
type Summary struct {
	Counts v1alpha1.NodeCounts
	// WaitsFor counts closed nodes by the signal that they wait for. The key is "" for nodes
	// that wait for no signal.
	WaitsFor map[string]int
	// Waiting contains the nodes that have been waiting the longest, longest first.
	Waiting                      []v1alpha1.WaitingNode
	Throttled, Contended, Denied NameList
	// ThrottledKnown reports whether any nodes of Throttled have to wait, or there are none. It is
	// false until all nodes have been counted, and while there is budget for all of these nodes
	// besides those being closed, because they are then evaluated again within seconds.
	ThrottledKnown bool
	// Lost names the signals and groups that require the first throttled nodes to be closed.
	Lost string
	// nonMembers contains the selected nodes that are not members, by reason.
	nonMembers map[v1alpha1.NonMemberReason]*NameList
	// Contradicting contains nodes on which gates contradict each other. Ring contains the
	// names of these gates on the first node.
	Contradicting NameList
	Ring          string
	// Undecided contains nodes on which it is unknown whether the gate should close.
	// UndecidedWhy is the cause on the first node.
	Undecided    NameList
	UndecidedWhy string
	// Overridden contains nodes on which the gate is manually overridden. Ignored contains
	// those on which an override is ignored, and IgnoredWhy is the cause on the first
	// node.
	Overridden, Ignored NameList
	IgnoredWhy          string
	// Overdue contains closed nodes past the deadline. OverdueFor is what the first of them
	// waits for. Lapsed contains nodes that the deadline opened.
	Overdue, Lapsed NameList
	OverdueFor      string
	// Published contains nodes that have the gate's condition. Unpublished contains those
	// that are queued for budget to get it.
	Published, Unpublished NameList
	// Denial is the API server's error for the first node of Denied.
	Denial string
	// Failing contains nodes on which the last write failed without being denied, and FailingLong those of
	// them on which writes have failed for a while. Failure is the error for the first of the latter or,
	// if there are none, of the former.
	Failing, FailingLong NameList
	Failure              string
}

// named reports whether a summary may name a node with this state.
func (s *GateState) named() bool {
	return s.State == v1alpha1.StateClosed || s.NonMember != "" || s.Throttled || s.Contended || s.Ring != "" || s.undecided != "" ||
		s.Denied != "" || s.Failed != "" || s.lapsed() || s.Override != "" || s.Ignored != "" || s.Published
}

// Summary returns the summary of a gate. What it contains is shared and must not be modified.
func (l *Ledger) Summary(gateName string) *Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out Summary
	g, ok := l.gates[gateName]
	if ok {
		if g.summary == nil {
			l.sumUp()
		}
		out = *g.summary
	}
	out.ThrottledKnown = l.isCounted(gateName) && (out.Throttled.Count == 0 || l.exceedsBudget(g))
	return &out
}

// sumUp computes the missing summaries of all gates. Counting nodes does not iterate over
// the nodes. Naming nodes iterates over those with a state to name, once for all gates.
func (l *Ledger) sumUp() {
	namers := make(map[*gateEntry]*namer)
	for _, g := range l.gates {
		if g.summary != nil {
			continue
		}
		g.summary = g.counted()
		if g.any(func(s *shape) bool { return s.named }) {
			namers[g] = &namer{Summary: g.summary}
		}
	}
	if len(namers) == 0 {
		return
	}
	for node, n := range l.named {
		for i := range n.states {
			if s := &n.states[i]; s.shape.named {
				if namer := namers[s.shape.gate]; namer != nil {
					namer.add(node, s)
				}
			}
		}
	}
	for g, namer := range namers {
		namer.finish(func(node string) GateState { return l.nodes[node].stateOf(g).GateState() })
	}
}

// counted returns a summary with counts and without names of nodes.
func (g *gateEntry) counted() *Summary {
	out := &Summary{WaitsFor: make(map[string]int), nonMembers: make(map[v1alpha1.NonMemberReason]*NameList)}
	for _, s := range g.shapes {
		if s.GateState.Selected {
			out.Counts.Selected += int32(s.nodes)
		}
		if s.GateState.NonMember != "" {
			out.Counts.NonMembers += int32(s.nodes)
		}
		switch s.GateState.State {
		case v1alpha1.StateOpen:
			out.Counts.Open += int32(s.nodes)
		case v1alpha1.StateClosed:
			out.Counts.Closed += int32(s.nodes)
			out.WaitsFor[s.GateState.Signal] += s.nodes
		}
	}
	return out
}

// namer finds the nodes that a summary names.
type namer struct {
	*Summary
	longest []waiter
}

// waiter is a closed node.
type waiter struct {
	node  string
	since int64
}

func (n *namer) add(node string, at *compactState) {
	s := &at.shape.GateState
	if s.State == v1alpha1.StateClosed {
		n.longest = insert(n.longest, waiter{node, at.since}, WaitingMax, func(a, b waiter) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.node, b.node))
		})
	}
	if s.NonMember != "" {
		if n.nonMembers[s.NonMember] == nil {
			n.nonMembers[s.NonMember] = &NameList{}
		}
		n.nonMembers[s.NonMember].AddIf(true, node)
	}
	n.Contradicting.AddIf(s.Ring != "", node)
	n.Throttled.AddIf(s.Throttled, node)
	n.Contended.AddIf(s.Contended, node)
	n.Undecided.AddIf(s.undecided != "", node)
	n.Denied.AddIf(s.Denied != "", node)
	n.Failing.AddIf(s.Failed != "", node)
	n.FailingLong.AddIf(s.FailedLong, node)
	n.Overdue.AddIf(s.Overdue && s.State == v1alpha1.StateClosed, node)
	n.Lapsed.AddIf(s.lapsed(), node)
	n.Published.AddIf(s.Published, node)
	n.Unpublished.AddIf(s.ConditionQueued, node)
	n.Overridden.AddIf(s.Override != "", node)
	n.Ignored.AddIf(s.Ignored != "", node)
}

// finish adds the details of the nodes that were found.
func (n *namer) finish(on func(node string) GateState) {
	n.Counts.Overdue, n.Counts.Overridden = int32(n.Overdue.Count), int32(n.Overridden.Count)
	if n.Overdue.Count > 0 {
		first := Waiting(n.Overdue.First[0], on(n.Overdue.First[0]))
		n.OverdueFor = fmt.Sprintf("%s waits for signal %s: %s", first.Node, cmp.Or(first.Signal, "-"), first.Message)
	}
	n.Lost = lost(on, n.Throttled.First)
	for _, w := range n.longest {
		n.Waiting = append(n.Waiting, Waiting(w.node, on(w.node)))
	}
	if n.Denied.Count > 0 {
		n.Denial = on(n.Denied.First[0]).Denied
	}
	if failing := slices.Concat(n.FailingLong.First, n.Failing.First); len(failing) > 0 {
		n.Failure = on(failing[0]).Failed
	}
	if n.Ignored.Count > 0 {
		n.IgnoredWhy = on(n.Ignored.First[0]).Ignored
	}
	if n.Contradicting.Count > 0 {
		n.Ring = on(n.Contradicting.First[0]).Ring
	}
	if n.Undecided.Count > 0 {
		n.UndecidedWhy = on(n.Undecided.First[0]).undecided
	}
}

// NonMembersByReason returns the selected nodes that are not members, for a status.
func (s *Summary) NonMembersByReason() []v1alpha1.NonMembers {
	var all []v1alpha1.NonMembers
	for _, why := range slices.Sorted(maps.Keys(s.nonMembers)) {
		nodes := s.nonMembers[why]
		all = append(all, v1alpha1.NonMembers{Reason: why, Message: gate.NonMemberMessage(why), Count: int32(nodes.Count), Nodes: nodes.First})
	}
	return all
}

// lost returns the signals or groups that require these nodes to be closed.
func lost(on func(node string) GateState, throttled []string) string {
	var all []string
	for _, node := range throttled {
		switch s := on(node); {
		case s.Signal != "":
			all = append(all, fmt.Sprintf("%s: signal %s: %s", node, s.Signal, gate.Clip(s.Reading.Message(), 512)))
		case s.Reading.Reason == v1alpha1.ReadingGroupIncomplete:
			all = append(all, fmt.Sprintf("%s: %s", node, gate.Clip(s.Reading.Message(), 512)))
		}
	}
	return strings.Join(all, "; ")
}

// Waiting returns the entry of a waiting node in a gate's status.
func Waiting(node string, s GateState) v1alpha1.WaitingNode {
	reading := s.Reading
	if s.Blocked.Reason != "" {
		reading = s.Blocked
	}
	reason, message := string(reading.Reason), reading.Message()
	switch {
	case reason != "":
	case s.Denied != "":
		reason, message = v1alpha1.ReasonWriteDenied, "the API server denies writing the node: "+s.Denied
	case s.Failed != "":
		reason, message = v1alpha1.ReasonWriteFailing, "writing the node fails: "+s.Failed
	}
	return v1alpha1.WaitingNode{
		Node: node, Since: metav1.NewTime(s.Since.Truncate(time.Second)), Signal: s.Signal,
		Reason: reason, Message: gate.Clip(message, 512),
	}
}
