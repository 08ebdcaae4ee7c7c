// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/internal/printer"
)

// textNodes is the maximum number of nodes in the text.
const textNodes = 5

// Text returns a short version of the report as human-readable text.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Headline())
	if r.Fleet.Held > 0 {
		fmt.Fprintf(&b, ", %s of them overdue", thousands(r.Overdue))
	}
	b.WriteString(".\n")
	for _, warning := range r.Warnings() {
		b.WriteString(warning + "\n")
	}
	if s := r.Fleet.Opened; s.Count > 0 {
		fmt.Fprintf(&b, "Time from creation to opening of %s: 50%% within %s, 90%% within %s, 99%% within %s, 100%% within %s.\n",
			printer.Count(s.Count, "node"), formatSeconds(s.P50), formatSeconds(s.P90), formatSeconds(s.P99), formatSeconds(s.Max))
	}
	writeGates(&b, r)
	writeGroups(&b, "POOL", r.Pools)
	writeGroups(&b, "ZONE", r.Zones)
	writeNodes(&b, r)
	for _, what := range r.Unread {
		fmt.Fprintf(&b, "\nIncomplete: %s.\n", what)
	}
	return b.String()
}

func writeGates(b *strings.Builder, r *Report) {
	if len(r.Gates) == 0 {
		b.WriteString("\nThere are no gates.\n")
		return
	}
	rows := printer.NewTable(b, "GATE", "CLOSED", "OPEN", "P50", "P90", "SIGNAL", "P50", "P90", "LAST ON", "WAITING")
	for i := range r.Gates {
		g := &r.Gates[i]
		cells := []string{g.Gate, fmt.Sprint(g.Closed), fmt.Sprint(g.Open), within(g.Opened, g.Opened.P50), within(g.Opened, g.Opened.P90)}
		for _, s := range g.Signals {
			rows.Add(append(cells, s.Name, within(s.Held, s.Held.P50), within(s.Held, s.Held.P90), fmt.Sprint(s.Last), fmt.Sprint(s.Waiting))...)
			cells = []string{"", "", "", "", ""}
		}
		if len(g.Signals) == 0 {
			rows.Add(append(cells, "-", "-", "-", "-", "-")...)
		}
	}
	rows.Flush()
}

func writeGroups(b *strings.Builder, header string, groups []Group) {
	if len(groups) < 2 {
		return
	}
	rows := printer.NewTable(b, header, "NODES", "HELD", "READY P50", "OPEN P50", "OPEN P90", "OPEN P99")
	for i := range groups {
		g := &groups[i]
		rows.Add(cmp.Or(g.Name, "(none)"), fmt.Sprint(g.Nodes), fmt.Sprint(g.Held), within(g.Ready, g.Ready.P50),
			within(g.Opened, g.Opened.P50), within(g.Opened, g.Opened.P90), within(g.Opened, g.Opened.P99))
	}
	rows.Flush()
}

func writeNodes(b *strings.Builder, r *Report) {
	if len(r.Nodes) == 0 {
		return
	}
	rows := printer.NewTable(b, "NODE", "STATE", "HELD FOR/OPEN AFTER", "WAITING FOR")
	for i := range min(len(r.Nodes), textNodes) {
		n := &r.Nodes[i]
		if !n.Held {
			took, known := n.Opened.After(n.Created)
			after := "-"
			if known {
				after = formatSeconds(seconds(took))
			}
			rows.Add(n.Node, "open", after, "-")
			continue
		}
		rows.Add(n.Node, "held", cmp.Or(closedFor(heldLongest(n).Closed, r.Time), "-"), waitsFor(n))
	}
	rows.Flush()
	if more := len(r.Nodes) - textNodes; more > 0 {
		fmt.Fprintf(b, "And %d more: kubectl gate report -o html --output-file report.html\n", more)
	}
}

// waitsFor returns the gates that hold a node, with the signals that they wait for.
func waitsFor(n *Node) string {
	var all []string
	for i := range n.Gates {
		g := &n.Gates[i]
		if !g.Holds() {
			continue
		}
		names := make([]string, 0, len(g.Signals))
		for _, w := range g.Awaited() {
			names = append(names, g.Gate+"/"+g.Signals[w].Name)
		}
		for _, w := range g.MayAwait() {
			names = append(names, g.Gate+"/"+g.Signals[w].Name+" (unknown)")
		}
		switch {
		case g.Opens && !g.Unknown:
			names = append(names, g.Gate+" (about to open)")
		case len(names) == 0:
			names = append(names, g.Gate)
		}
		all = append(all, names...)
	}
	return strings.Join(all, ", ")
}

// within returns a percentile, or "-" if there are no values.
func within(s Spread, seconds float64) string {
	if s.Count == 0 {
		return "-"
	}
	return formatSeconds(seconds)
}
