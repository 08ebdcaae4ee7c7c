// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
)

// Text returns the preview as human-readable text.
func (p *Preview) Text() string {
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
	fmt.Fprintf(&b, "%d of %s would change.\n", len(changing), printer.Count(p.Nodes, "existing node"))
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

// actionTexts describes what happens to a gate.
var actionTexts = map[Action]string{
	Create: "new", Modify: "changed", Delete: "deleted",
	Keep: "unchanged", Affect: "not part of the change, but affected by it",
}

// whatTexts describes what would happen to nodes.
var whatTexts = map[What]string{
	Closes: "would close", Waits: "would wait", Lapses: "would close later", Opens: "would open",
	Retaints: "would change taint", Joins: "would be adopted", Leaves: "would be released", HandsOver: "would be handed over",
	StaysClosed: "would stay closed", StaysOpen: "would stay open", Outside: "not members",
}

func writeGate(b *strings.Builder, g *Gate) {
	fmt.Fprintf(b, "\n%s (%s)\n", g.Gate, actionTexts[g.Action])
	rows := printer.NewRows(b)
	row := rows.Row
	if g.Action != Delete {
		row("in force", printer.YesNo(g.InForce)+": "+g.Message)
	}
	if len(g.Taints) > 0 {
		row("taint", strings.Join(g.Taints, ", then "))
	}
	if g.Action != Delete {
		row("selects", printer.Count(g.Selected, "node"))
	}
	g.EffectRows(row)
	for _, problem := range g.Problems {
		row("problem", problem)
	}
	rows.Flush()
}

// EffectRows calls row with a label and a text for each effect on existing and on new nodes.
func (g *Gate) EffectRows(row func(label, text string)) {
	for i := range g.Groups {
		row(groupText(&g.Groups[i]))
	}
	for i := range g.Budget {
		row("budget", zoneText(&g.Budget[i]))
	}
	if e := g.Evictions; e != nil {
		row("evictions", evictionsText(e))
	}
	for i := range g.Descheduled {
		row("descheduler", descheduledText(&g.Descheduled[i]))
	}
	if g.NewNodes != nil {
		writeNewNodes(row, g)
	}
}

func groupText(g *Group) (label, text string) {
	text = printer.Count(len(g.Nodes), "node") + ": " + printer.Some(g.Nodes, namesMax)
	if g.Why != "" {
		text += "; " + g.Why
	}
	switch {
	case g.DryRun && whatTexts[g.What] != "":
		text += " [in mode Enforce; nothing happens in DryRun]"
	case g.Anyway:
		text += " [also without the change]"
	}
	return whatTexts[g.What], text
}

func zoneText(z *Zone) string {
	name := "nodes without a zone"
	if z.Zone != "" {
		name = "zone " + z.Zone
	}
	return fmt.Sprintf("%s: at most %d of %s may be closed; %d %s closed now, %d would close immediately, %d would wait",
		name, z.MaxReclosed, printer.Count(z.Nodes, "node"), z.Closed, printer.IsAre(z.Closed), z.Closes, z.Waits)
}

func evictionsText(e *Evictions) string {
	switch {
	case e.Unknown:
		return "unknown, because pods were not read: pods that do not tolerate the taint would be deleted immediately, regardless of PodDisruptionBudgets"
	case e.Pods == 0:
		return "none: all pods on the nodes that would get the taint tolerate it"
	}
	return fmt.Sprintf("%s (%d of DaemonSets) on %s would be deleted when the taint is added, regardless of PodDisruptionBudgets: %s",
		printer.Count(e.Pods, "pod"), e.Daemons, printer.Count(e.Nodes, "node"), gate.FirstNames(e.Examples, e.Pods))
}

func descheduledText(d *Descheduled) string {
	switch {
	case d.Unknown:
		return d.By + " would evict pods that do not tolerate the taint from the nodes that would get it, but it is unknown how many, because pods could not be read; " + d.Exemption
	case d.Pods == 0:
		return d.By + " evicts pods because of the taint, but all pods that it could evict from the nodes that would get it tolerate it; " + d.Exemption
	}
	return fmt.Sprintf("%s would evict up to %s on %s after the taint is added: %s; %s",
		d.By, printer.Count(d.Pods, "pod"), printer.Count(d.Nodes, "node"), gate.FirstNames(d.Examples, d.Pods), d.Exemption)
}

// writeNewNodes writes what a node that is created now would wait for.
func writeNewNodes(row func(label, text string), g *Gate) {
	n := g.NewNodes
	only := ""
	if !g.InForce || g.Mode != v1alpha1.ModeEnforce {
		only = "not closed; if the gate were in force in mode Enforce: "
	}
	if n.Nodes == 0 {
		row("new nodes", only+"unknown, because there are no nodes to evaluate the signals on")
		return
	}
	text := only + fmt.Sprintf("with the current signals, the gate would open on %d of %s", n.Open, printer.Count(n.Nodes, "node"))
	if n.Together {
		text += ", if their groups were complete"
	}
	text += waitsText(n)
	if n.Blocked > 0 {
		text += fmt.Sprintf("; %d of them %s unreachable, shutting down or being set up", n.Blocked, printer.IsAre(n.Blocked))
	}
	row("new nodes", text)
	for _, s := range n.Signals {
		if len(s.Others) == 0 {
			row("  "+s.Name, fmt.Sprintf("holds on %s", printer.Count(s.Holds, "node")))
			continue
		}
		for _, o := range s.Others {
			row("  "+s.Name, fmt.Sprintf("%s on %s: %s; %s (%s)", stateTexts[o.State], printer.Count(len(o.Nodes), "node"), printer.Some(o.Nodes, namesMax), o.Message, o.Reason))
		}
	}
}

// waitsText returns the text of the waits of a gate after its signals hold, or "".
func waitsText(n *NewNodes) string {
	var waits []string
	if s := n.OpenAfterSeconds; s > 0 {
		waits = append(waits, fmt.Sprintf("the signals have held for %ds (openAfterSeconds)", s))
	}
	if s := n.MinClosedSeconds; s > 0 {
		waits = append(waits, fmt.Sprintf("the gate has been closed for %ds (minClosedSeconds)", s))
	}
	if len(waits) == 0 {
		return ""
	}
	return ", as soon as " + strings.Join(waits, " and ")
}

var stateTexts = map[string]string{"NotYet": "does not hold", "Unknown": "is unknown"}

// namesMax is the maximum number of node names in a row.
const namesMax = 5
