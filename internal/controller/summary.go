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
	// strangers counts records of a gate that is not known.
	strangers int
	// overdue are closed nodes past the deadline, overdueFor is what the first of
	// them waits for, and lapsed are nodes that the deadline opened.
	overdue, lapsed few
	overdueFor      string
	// denial is what the API server said about the first of the denied.
	denial string
}

func summarize(nodes map[string]standing) *summary {
	out := &summary{waitsFor: make(map[string]int)}
	longest := make([]string, 0, waitingMax+1)
	byWait := func(a, b string) int {
		return cmp.Or(nodes[a].since.Compare(nodes[b].since), cmp.Compare(a, b))
	}
	for node, s := range nodes {
		if s.selected {
			out.counts.Selected++
		}
		switch s.state {
		case v1alpha1.StateOpen:
			out.counts.Open++
		case v1alpha1.StateClosed:
			out.counts.Closed++
			out.waitsFor[s.signal]++
			longest = insert(longest, node, waitingMax, byWait)
		}
		out.outside.addIf(s.selected && s.state == "", node)
		if s.stranger {
			out.strangers++
		}
		out.throttled.addIf(s.throttled, node)
		out.contended.addIf(s.contended, node)
		out.doubtful.addIf(s.doubt != "", node)
		out.denied.addIf(s.denied != "", node)
		out.overdue.addIf(s.overdue && s.state == v1alpha1.StateClosed, node)
		out.lapsed.addIf(s.lapsed(), node)
		out.overridden.addIf(s.override != "", node)
		out.ignored.addIf(s.ignored != "", node)
	}
	out.counts.Overdue, out.counts.Overridden = int32(out.overdue.count), int32(out.overridden.count)
	if out.overdue.count > 0 {
		first := waiting(out.overdue.first[0], nodes[out.overdue.first[0]])
		out.overdueFor = fmt.Sprintf("%s waits for signal %s: %s", first.Node, cmp.Or(first.Signal, "-"), first.Message)
	}
	out.lost = lost(nodes, out.throttled.first)
	for _, node := range longest {
		out.waiting = append(out.waiting, waiting(node, nodes[node]))
	}
	if out.denied.count > 0 {
		out.denial = nodes[out.denied.first[0]].denied
	}
	if out.ignored.count > 0 {
		out.ignoredWhy = nodes[out.ignored.first[0]].ignored
	}
	if out.doubtful.count > 0 {
		out.doubt = nodes[out.doubtful.first[0]].doubt
	}
	return out
}

// lost tells because of which signals these nodes are to be closed.
func lost(nodes map[string]standing, throttled []string) string {
	var all []string
	for _, node := range throttled {
		if s := nodes[node]; s.signal != "" {
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

// insert puts a name in its place in a sorted list of at most so many.
func insert(sorted []string, name string, most int, compare func(a, b string) int) []string {
	i, _ := slices.BinarySearchFunc(sorted, name, compare)
	if i >= most {
		return sorted
	}
	sorted = slices.Insert(sorted, i, name)
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
