// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/timeline"
)

// The summary is what a reader sees first: how many nodes are held, for what, and what is unknown.

// Headline returns how many nodes are held.
func (r *Report) Headline() string {
	if r.Fleet.Nodes == 0 {
		return "There are no nodes"
	}
	verb := printer.IsAre(r.Fleet.Held)
	if r.Fleet.Nodes == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s of %s %s held", thousands(r.Fleet.Held), counted(r.Fleet.Nodes, "node"), verb)
}

// heldNode is a held node with the gate that has held it longest.
type heldNode struct {
	*Node
	Gate *timeline.Gate
	For  string
	// Waits names the signals that the gate waits for.
	Waits string
	// Messages are those of these signals or, if no signal can open the gate at present, the
	// reason why.
	Messages []string
	// Others names the other gates that hold the node.
	Others string
	// Overdue is true if one of the gates that hold the node is past its deadline.
	Overdue bool
}

// held returns a held node with the gate that has held it longest and what this gate waits
// for.
func held(n *Node, now time.Time) heldNode {
	h := heldNode{Node: n, Gate: heldLongest(n)}
	h.Waits, h.Messages = awaits(h.Gate)
	h.Others, h.Overdue = others(n, h.Gate)
	h.For = cmp.Or(closedFor(h.Gate.Closed, now), "unknown duration")
	return h
}

// heldLongest returns the gate that has held a held node longest, as far as that is known.
func heldLongest(n *Node) *timeline.Gate {
	var longest *timeline.Gate
	for i := range n.Gates {
		if g := &n.Gates[i]; g.Holds() && (longest == nil || longer(g.Closed, longest.Closed)) {
			longest = g
		}
	}
	return longest
}

// Warnings returns sentences about gates that do not hold the nodes that they should: they are not in
// force, or are open until the controller closes them.
func (r *Report) Warnings() (warnings []string) {
	var rejected, closing []string
	for i := range r.Gates {
		g := &r.Gates[i]
		if g.NotInForce != "" {
			rejected = append(rejected, g.Gate)
		}
		if g.closing > 0 {
			closing = append(closing, fmt.Sprintf("gate %s on %s", g.Gate, counted(g.closing, "node")))
		}
	}
	if len(rejected) > 0 {
		warnings = append(warnings, "Gates that are not in force: "+printer.Some(rejected, maxAwaited)+".")
	}
	if len(closing) > 0 {
		warnings = append(warnings, "The controller is about to close "+printer.Some(closing, maxAwaited)+", unless it is not running or a gate's budget is used up.")
	}
	return warnings
}

// closedFor returns for how long a gate has been closed, or "" if that is unknown. An adopted taint
// may have been on the node before the gate adopted it.
func closedFor(closed timeline.Moment, now time.Time) string {
	if closed.At.IsZero() {
		return ""
	}
	elapsed := formatSeconds(seconds(max(now.Sub(closed.At), 0))) // clocks may differ
	if !closed.Known() {
		return "at least " + elapsed
	}
	return elapsed
}

// TimeToOpen returns the time that a node took to open or, if it is held, for which it has been held.
func (v *view) TimeToOpen(n Node) string {
	if n.Held {
		return "held " + held(&n, v.Time).For
	}
	if took, known := n.Opened.After(n.Created); known {
		return formatSeconds(seconds(took))
	}
	return "–"
}

// awaits returns the names of the signals that a gate waits for, and the messages about it.
func awaits(g *timeline.Gate) (string, []string) {
	var names, messages []string
	for _, w := range g.Awaited() {
		names = append(names, g.Signals[w].Name)
		messages = append(messages, g.Signals[w].Message)
	}
	for _, w := range g.MayAwait() {
		messages = append(messages, g.Signals[w].Message)
	}
	switch {
	case g.Blocked != "":
		messages = []string{g.Blocked}
	case g.Unknown:
		messages = []string{"there is no NodeGate of this name: it was deleted, or the gate is declared in a file"}
	case g.Opens:
		messages = []string{"nothing keeps the gate closed: the controller opens it immediately, unless it is not running"}
	}
	return printer.Enumerate(names, "and"), messages
}

// others returns the names of the other gates that hold a node, and whether any of the gates that
// hold it is overdue.
func others(n *Node, except *timeline.Gate) (names string, overdue bool) {
	var all []string
	for i := range n.Gates {
		g := &n.Gates[i]
		if !g.Holds() {
			continue
		}
		overdue = overdue || g.Overdue
		switch {
		case g == except:
		case g.Overdue:
			all = append(all, g.Gate+" (overdue)")
		default:
			all = append(all, g.Gate)
		}
	}
	return printer.Enumerate(all, "and"), overdue
}

// longer reports whether a gate that closed at a is known to have been closed for longer
// than one that closed at b.
func longer(a, b timeline.Moment) bool {
	return a.Known() && (!b.Known() || a.At.Before(b.At))
}

// HeldMore returns the number of held nodes that are not in Held.
func (v *view) HeldMore() int { return max(v.Fleet.Held-len(v.Held), 0) }

// awaited is a signal that nodes wait for. Without a name, it is the controller, which is about to
// open the gate.
type awaited struct {
	Gate, Signal string
	CloseWhen    bool
	Nodes        int
}

// maxAwaited is the maximum number of them in the summary.
const maxAwaited = 4

// allAwaited returns what held nodes wait for, that of most nodes first.
func (v *view) allAwaited() []awaited {
	var all []awaited
	for i := range v.Gates {
		g := &v.Gates[i]
		if g.opening > 0 {
			all = append(all, awaited{Gate: g.Gate, Nodes: g.opening})
		}
		for _, s := range g.Signals {
			if s.holding > 0 {
				all = append(all, awaited{g.Gate, s.Name, g.CloseWhen, s.holding})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b awaited) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return all
}

// Awaited returns what most held nodes wait for.
func (v *view) Awaited() []awaited {
	all := v.allAwaited()
	return all[:min(len(all), maxAwaited)]
}

// AwaitedMore returns the number of those that are not in Awaited.
func (v *view) AwaitedMore() int { return max(len(v.allAwaited())-maxAwaited, 0) }

// maxUnread is the maximum number of read errors in the summary.
const maxUnread = 3

// FirstUnread returns the first read errors.
func (v *view) FirstUnread() []string { return v.Unread[:min(len(v.Unread), maxUnread)] }

// UnreadMore returns the number of read errors that are not in FirstUnread.
func (v *view) UnreadMore() int { return max(len(v.Unread)-maxUnread, 0) }
