// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// text returns the status as human-readable text, or the names of the objects.
func (f *FleetStatus) text(m marks, format string) string {
	var b strings.Builder
	if format == formatName {
		for i := range f.Gates {
			if f.Gates[i].Source == v1alpha1.SourceCRD {
				fmt.Fprintf(&b, "nodegate.%s/%s\n", v1alpha1.GroupName, f.Gates[i].Gate) // kubectl's form
			}
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s.\n", sentence(f.Controller.Message))
	if len(f.Gates) == 0 {
		b.WriteString("There are no gates.\n")
	} else {
		f.table(&b, m, format == formatWide)
	}
	if slices.ContainsFunc(f.Gates, func(g GateStatus) bool { return g.FromRecords }) {
		b.WriteString("\nFor gates with ? under THROTTLED, nodes are counted by the records that they carry.\n")
	}
	for i := range f.Gates {
		f.Gates[i].details(&b, f.Time, format == formatWide)
	}
	for _, what := range f.Unread {
		fmt.Fprintf(&b, "\nIncomplete: %s.\n", what)
	}
	return b.String()
}

func (f *FleetStatus) table(b *strings.Builder, m marks, wide bool) {
	head := []string{"GATE", "MODE", "READY", "SELECTED", "OPEN", "CLOSED", "OVERDUE", "THROTTLED", "OVERRIDDEN", "LONGEST WAITING"}
	if wide {
		head = append(head[:len(head)-1], "SOURCE", "TAINT", "LONGEST WAITING")
	}
	rows := newTable(b, head...)
	for i := range f.Gates {
		g := &f.Gates[i]
		cells := append([]string{g.Gate, cmp.Or(string(g.Mode), "-"), g.ready(m)}, g.numbers()...)
		if wide {
			cells = append(cells, cmp.Or(g.Source, "-"), cmp.Or(g.Taint, "-"))
		}
		rows.add(append(cells, g.waits(f.Time))...)
	}
	rows.flush()
}

// ready returns the cell for the condition Ready: a mark and, if needed, a reason.
func (g *GateStatus) ready(m marks) string {
	mark := m[gate.Unknown.String()]
	switch g.Ready {
	case string(metav1.ConditionTrue):
		mark = m[gate.Holds.String()]
	case string(metav1.ConditionFalse):
		mark = m[gate.NotYet.String()]
	}
	switch {
	case g.Gone:
		return mark + " Gone"
	case g.Reason == "" && g.Stale != "" && g.Source == v1alpha1.SourceCRD:
		return mark + " Stale"
	case g.Reason == v1alpha1.ReasonReady:
		return mark
	}
	return strings.TrimSpace(mark + " " + g.Reason)
}

func (g *GateStatus) numbers() []string {
	if g.Nodes == nil {
		return []string{"?", "?", "?", "?", "?", "?"}
	}
	number := func(n int32) string { return fmt.Sprint(n) }
	throttled := number(g.Nodes.Throttled)
	if g.FromRecords {
		throttled = "?"
	}
	n := g.Nodes
	return []string{number(n.Selected), number(n.Open), number(n.Closed), number(n.Overdue), throttled, number(n.Overridden)}
}

// waits returns the node that has been waiting longest, for how long and for what.
func (g *GateStatus) waits(now time.Time) string {
	if len(g.Waiting) == 0 {
		return "-"
	}
	return waitsFor(&g.Waiting[0], now)
}

func waitsFor(w *v1alpha1.WaitingNode, now time.Time) string {
	text := w.Node
	if !w.Since.IsZero() {
		text += " (" + duration.HumanDuration(max(now.Sub(w.Since.Time), 0)) + ")"
	}
	switch {
	case w.Signal != "":
		text += ": " + w.Signal + ", " + w.Reason
	case w.Reason != "":
		text += ": " + w.Reason
	}
	return text
}

// details writes the problems of the gate and the reason why its counts may be stale.
func (g *GateStatus) details(b *strings.Builder, now time.Time, wide bool) {
	var lines []string
	if g.Stale != "" && g.Stale != noController {
		lines = append(lines, g.Stale)
	}
	if g.Ready == string(metav1.ConditionFalse) || wide && g.Message != "" {
		lines = append(lines, fmt.Sprintf("Ready is %s (%s): %s", g.Ready, g.Reason, g.Message))
	}
	for _, t := range g.Troubles {
		lines = append(lines, t.Condition+": "+t.Message)
	}
	for i := range g.NonMembers {
		lines = append(lines, notMembers(&g.NonMembers[i]))
	}
	if wide {
		for i := range g.Waiting {
			line := "waiting: " + waitsFor(&g.Waiting[i], now)
			if g.Waiting[i].Message != "" {
				line += ": " + g.Waiting[i].Message
			}
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s:\n  %s\n", g.Gate, strings.Join(lines, "\n  "))
	}
}

// notMembers returns which selected nodes are not members, and the reason.
func notMembers(n *v1alpha1.NonMembers) string {
	names := strings.Join(n.Nodes, ", ")
	if more := int(n.Count) - len(n.Nodes); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("not members (%s): %s: %s", n.Reason, names, n.Message)
}

// sentence capitalizes the first letter of a message.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
