// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/preview"
)

// previewText is a preview for people.
func previewText(p *preview.Preview) string {
	var b strings.Builder
	acts := 0
	for i := range p.Gates {
		for j := range p.Gates[i].Groups {
			if g := &p.Gates[i].Groups[j]; g.Acts() {
				acts++
			}
		}
	}
	switch {
	case acts > 0:
		fmt.Fprintf(&b, "This would change nodes that are there, of %s.\n", count(p.Nodes, "node"))
	default:
		fmt.Fprintf(&b, "This would change none of the %s that are there.\n", count(p.Nodes, "node"))
	}
	for i := range p.Gates {
		writeGate(&b, &p.Gates[i])
	}
	if len(p.Unread) > 0 {
		b.WriteByte('\n')
	}
	for _, what := range p.Unread {
		fmt.Fprintf(&b, "Not known: %s.\n", what)
	}
	return b.String()
}

// previewActions say what becomes of a gate.
var previewActions = map[preview.Action]string{
	preview.Create: "new", preview.Modify: "changed", preview.Delete: "deleted",
	preview.Keep: "as it is already", preview.Affect: "not part of the change, but affected by it",
}

// previewMoves say what would become of nodes.
var previewMoves = map[preview.What]string{
	preview.Closes: "would close", preview.Waits: "would wait", preview.Lapses: "would close later", preview.Opens: "would open",
	preview.Retaints: "other taint", preview.Joins: "would join", preview.Leaves: "would leave", preview.HandsOver: "handed over",
	preview.StaysClosed: "stay closed", preview.StaysOpen: "stay open", preview.Outside: "outside",
}

func writeGate(b *strings.Builder, g *preview.Gate) {
	fmt.Fprintf(b, "\n%s (%s)\n", g.Gate, previewActions[g.Action])
	rows := newRows(b)
	row := rows.row
	if g.Action != preview.Delete {
		row("in force", yesNo(g.InForce)+": "+g.Message)
	}
	if len(g.Taints) > 0 {
		row("taint", strings.Join(g.Taints, ", then "))
	}
	if g.Action != preview.Delete {
		row("selects", count(g.Selected, "node"))
	}
	for i := range g.Groups {
		row(groupText(&g.Groups[i]))
	}
	for i := range g.Budget {
		row("budget", zoneText(&g.Budget[i]))
	}
	if e := g.Evictions; e != nil {
		row("evictions", evictionsText(e))
	}
	if g.NewNodes != nil {
		writeNewNodes(row, g)
	}
	for _, problem := range g.Problems {
		row("problem", problem)
	}
	rows.flush()
}

func groupText(g *preview.Group) (label, text string) {
	text = count(len(g.Nodes), "node") + ": " + some(g.Nodes)
	if g.Why != "" {
		text += "; " + g.Why
	}
	switch {
	case g.DryRun && previewMoves[g.What] != "":
		text += " [with mode Enforce; in DryRun nothing is done]"
	case g.Anyway:
		text += " [without the change, too]"
	}
	return previewMoves[g.What], text
}

func zoneText(z *preview.Zone) string {
	name := "nodes without a zone"
	if z.Zone != "" {
		name = "zone " + z.Zone
	}
	return fmt.Sprintf("%s: %d of its %s may be closed at a time; %d %s already, %d would be at once, %d would wait in line",
		name, z.MaxReclosed, count(z.Nodes, "node"), z.Closed, isAre(z.Closed), z.Closes, z.Waits)
}

func evictionsText(e *preview.Evictions) string {
	switch {
	case e.Unknown:
		return "which pods do not tolerate the taint is not known; those would be removed at once, whatever their PodDisruptionBudgets say"
	case e.Pods == 0:
		return "none: all pods on the nodes that would close tolerate the taint"
	}
	return fmt.Sprintf("%s (%d of daemons) on %s would be removed, as the nodes close and whatever PodDisruptionBudgets say: %s",
		count(e.Pods, "pod"), e.Daemons, count(e.Nodes, "node"), listed(e.Examples, e.Pods))
}

// writeNewNodes says what a node would wait for that is created now.
func writeNewNodes(row func(label, text string), g *preview.Gate) {
	n := g.NewNodes
	only := ""
	if !g.InForce || g.Mode != v1alpha1.ModeEnforce {
		only = "are not closed; if the gate were in force with mode Enforce: "
	}
	if n.Nodes == 0 {
		row("new nodes", only+"there is no node to go by")
		return
	}
	text := only + fmt.Sprintf("by what the signals say now, the gate would open on %d of %s", n.Open, count(n.Nodes, "node"))
	if n.Blocked > 0 {
		text += fmt.Sprintf("; %d of them are silent, shutting down or being set up", n.Blocked)
	}
	row("new nodes", text)
	for _, s := range n.Signals {
		if len(s.Others) == 0 {
			row("  "+s.Name, fmt.Sprintf("holds on %s", count(s.Holds, "node")))
			continue
		}
		for _, o := range s.Others {
			row("  "+s.Name, fmt.Sprintf("%s on %s: %s; %s (%s)", stateWords[o.State], count(len(o.Nodes), "node"), some(o.Nodes), o.Message, o.Reason))
		}
	}
}

var stateWords = map[string]string{"NotYet": "does not hold", "Unknown": "is not known"}

// someMax is how many names are named where there are many.
const someMax = 5

func some(names []string) string { return listed(names[:min(len(names), someMax)], len(names)) }

// listed names the first of so many.
func listed(first []string, of int) string {
	text := strings.Join(first, ", ")
	if rest := of - len(first); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
