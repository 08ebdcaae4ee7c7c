// SPDX-License-Identifier: Apache-2.0

package status

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
	"github.com/nodegate/nodegate/internal/printer"
)

// KubectlNames returns the names of the NodeGate objects in the form that kubectl prints.
func (s *Status) KubectlNames() string {
	var b strings.Builder
	for i := range s.Gates {
		if s.Gates[i].Source == v1alpha1.SourceCRD {
			fmt.Fprintf(&b, "nodegate.%s/%s\n", v1alpha1.GroupName, s.Gates[i].Gate)
		}
	}
	return b.String()
}

// Text returns the status as human-readable text, with more details if wide is set.
func (s *Status) Text(m printer.Marks, wide bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", sentence(s.Controller.Message))
	if len(s.Gates) == 0 {
		b.WriteString("There are no gates.\n")
	} else {
		s.table(&b, m, wide)
	}
	if slices.ContainsFunc(s.Gates, func(g Gate) bool { return g.FromRecords }) {
		b.WriteString("\nFor gates with ? under THROTTLED, numbers are counts of the records that nodes carry.\n")
	}
	if names := s.unconfirmed(); len(names) > 0 {
		fmt.Fprintf(&b, "\nIf no controller is running, the status of these gates may be out of date: %s.\n", printer.Some(names, maxUnconfirmed))
	}
	for i := range s.Gates {
		s.Gates[i].details(&b, s.Time, wide)
	}
	for _, what := range s.Unread {
		fmt.Fprintf(&b, "\nIncomplete: %s.\n", what)
	}
	return b.String()
}

// maxUnconfirmed is the maximum number of gates that are named because their status may be out of date.
const maxUnconfirmed = 5

// unconfirmed returns the names of the gates with a status that a controller reported, if it is
// unknown whether one is running.
func (s *Status) unconfirmed() (names []string) {
	for i := range s.Gates {
		if s.Controller.Running == Unknown && s.Gates[i].Stale == "" {
			names = append(names, s.Gates[i].Gate)
		}
	}
	return names
}

func (s *Status) table(b *strings.Builder, m printer.Marks, wide bool) {
	head := []string{"GATE", "MODE", "READY", "SELECTED", "OPEN", "CLOSED", "OVERDUE", "THROTTLED", "OVERRIDDEN", "LONGEST WAITING"}
	if wide {
		head = append(head[:len(head)-1], "SOURCE", "TAINT", "LONGEST WAITING")
	}
	rows := printer.NewTable(b, head...)
	for i := range s.Gates {
		g := &s.Gates[i]
		cells := append([]string{g.Gate, cmp.Or(string(g.Mode), "-"), g.ready(m)}, g.numbers()...)
		if wide {
			cells = append(cells, cmp.Or(g.Source, "-"), cmp.Or(g.Taint, "-"))
		}
		rows.Add(append(cells, g.waits(s.Time))...)
	}
	rows.Flush()
}

// ready returns the cell for the condition Ready: a mark and, if needed, a reason.
func (g *Gate) ready(m printer.Marks) string {
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

func (g *Gate) numbers() []string {
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
func (g *Gate) waits(now time.Time) string {
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
func (g *Gate) details(b *strings.Builder, now time.Time, wide bool) {
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
	return fmt.Sprintf("not members (%s): %s: %s", n.Reason, gate.FirstNames(n.Nodes, int(n.Count)), n.Message)
}

// sentence capitalizes the first letter of a message.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
