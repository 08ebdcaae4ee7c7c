// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/preview"
)

// previewText returns a preview as human-readable text.
func previewText(p *preview.Preview) string {
	var b strings.Builder
	changing := make(map[string]bool)
	for i := range p.Gates {
		for j := range p.Gates[i].Groups {
			g := &p.Gates[i].Groups[j]
			if !g.Acts() {
				continue
			}
			for _, name := range g.Nodes {
				changing[name] = true
			}
		}
	}
	fmt.Fprintf(&b, "%d of %s would change.\n", len(changing), count(p.Nodes, "existing node"))
	for i := range p.Gates {
		writeGate(&b, &p.Gates[i])
	}
	if len(p.Unread) > 0 {
		b.WriteByte('\n')
	}
	for _, what := range p.Unread {
		fmt.Fprintf(&b, "Incomplete: %s.\n", what)
	}
	return b.String()
}

// previewActions describes what happens to a gate.
var previewActions = map[preview.Action]string{
	preview.Create: "new", preview.Modify: "changed", preview.Delete: "deleted",
	preview.Keep: "unchanged", preview.Affect: "not part of the change, but affected by it",
}

// previewMoves describes what would happen to nodes.
var previewMoves = map[preview.What]string{
	preview.Closes: "would close", preview.Waits: "would wait", preview.Lapses: "would close later", preview.Opens: "would open",
	preview.Retaints: "would change taint", preview.Joins: "would be adopted", preview.Leaves: "would be released", preview.HandsOver: "would be handed over",
	preview.StaysClosed: "would stay closed", preview.StaysOpen: "would stay open", preview.Outside: "not members",
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
		text += " [in mode Enforce; nothing happens in DryRun]"
	case g.Anyway:
		text += " [also without the change]"
	}
	return previewMoves[g.What], text
}

func zoneText(z *preview.Zone) string {
	name := "nodes without a zone"
	if z.Zone != "" {
		name = "zone " + z.Zone
	}
	return fmt.Sprintf("%s: at most %d of %s may be closed; %d %s closed now, %d would close immediately, %d would wait",
		name, z.MaxReclosed, count(z.Nodes, "node"), z.Closed, isAre(z.Closed), z.Closes, z.Waits)
}

func evictionsText(e *preview.Evictions) string {
	switch {
	case e.Unknown:
		return "unknown, because pods could not be read: pods that do not tolerate the taint would be deleted immediately, regardless of PodDisruptionBudgets"
	case e.Pods == 0:
		return "none: all pods on the nodes that would close tolerate the taint"
	}
	return fmt.Sprintf("%s (%d of DaemonSets) on %s would be deleted when the nodes close, regardless of PodDisruptionBudgets: %s",
		count(e.Pods, "pod"), e.Daemons, count(e.Nodes, "node"), listed(e.Examples, e.Pods))
}

// writeNewNodes writes what a node that is created now would wait for.
func writeNewNodes(row func(label, text string), g *preview.Gate) {
	n := g.NewNodes
	only := ""
	if !g.InForce || g.Mode != v1alpha1.ModeEnforce {
		only = "not closed; if the gate were in force in mode Enforce: "
	}
	if n.Nodes == 0 {
		row("new nodes", only+"unknown, because there are no nodes to evaluate the signals on")
		return
	}
	text := only + fmt.Sprintf("with the current signals, the gate would open on %d of %s", n.Open, count(n.Nodes, "node"))
	if n.Blocked > 0 {
		text += fmt.Sprintf("; %d of them %s unreachable, shutting down or being set up", n.Blocked, isAre(n.Blocked))
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

var stateWords = map[string]string{"NotYet": "does not hold", "Unknown": "is unknown"}

// someMax is the maximum number of node names in a row.
const someMax = 5

func some(names []string) string { return listed(names[:min(len(names), someMax)], len(names)) }

// listed joins the first names of a list, followed by the number of the others.
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
