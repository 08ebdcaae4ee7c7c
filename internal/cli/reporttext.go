// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/report"
)

// reportNodes is the maximum number of nodes in the text.
const reportNodes = 5

// reportText returns a short version of the report as human-readable text.
func reportText(r *report.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes are held, %d of them overdue.\n", r.Fleet.Held, r.Fleet.Nodes, r.Overdue)
	if s := r.Fleet.Opened; s.Count > 0 {
		fmt.Fprintf(&b, "Time from creation to opening of %s: 50%% within %s, 90%% within %s, 99%% within %s, 100%% within %s.\n",
			count(s.Count, "node"), report.Took(s.P50), report.Took(s.P90), report.Took(s.P99), report.Took(s.Max))
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

func writeGates(b *strings.Builder, r *report.Report) {
	if len(r.Gates) == 0 {
		b.WriteString("\nThere are no gates.\n")
		return
	}
	rows := newTable(b, "GATE", "CLOSED", "OPEN", "P50", "P90", "SIGNAL", "P50", "P90", "LAST ON", "WAITING")
	for i := range r.Gates {
		g := &r.Gates[i]
		cells := []string{g.Gate, fmt.Sprint(g.Closed), fmt.Sprint(g.Open), within(g.Opened, g.Opened.P50), within(g.Opened, g.Opened.P90)}
		for _, s := range g.Signals {
			rows.add(append(cells, s.Name, within(s.Held, s.Held.P50), within(s.Held, s.Held.P90), fmt.Sprint(s.Last), fmt.Sprint(s.Waiting))...)
			cells = []string{"", "", "", "", ""}
		}
		if len(g.Signals) == 0 {
			rows.add(append(cells, "-", "-", "-", "-", "-")...)
		}
	}
	rows.flush()
}

func writeGroups(b *strings.Builder, header string, groups []report.Group) {
	if len(groups) < 2 {
		return
	}
	rows := newTable(b, header, "NODES", "HELD", "READY P50", "OPEN P50", "OPEN P90", "OPEN P99")
	for i := range groups {
		g := &groups[i]
		rows.add(cmp.Or(g.Name, "(none)"), fmt.Sprint(g.Nodes), fmt.Sprint(g.Held), within(g.Ready, g.Ready.P50),
			within(g.Opened, g.Opened.P50), within(g.Opened, g.Opened.P90), within(g.Opened, g.Opened.P99))
	}
	rows.flush()
}

func writeNodes(b *strings.Builder, r *report.Report) {
	if len(r.Nodes) == 0 {
		return
	}
	rows := newTable(b, "NODE", "STATE", "HELD FOR/OPEN AFTER", "WAITING FOR")
	for i := range min(len(r.Nodes), reportNodes) {
		n := &r.Nodes[i]
		if !n.Held {
			took, known := n.Opened.After(n.Created)
			after := "-"
			if known {
				after = report.Took(took.Seconds())
			}
			rows.add(n.Node, "open", after, "-")
			continue
		}
		var waits []string
		for j := range n.Gates {
			if g := &n.Gates[j]; g.State == v1alpha1.StateClosed && !g.Soft {
				name := g.Gate
				if w := g.Waits(); w >= 0 {
					name += "/" + g.Signals[w].Name
				}
				waits = append(waits, name)
			}
		}
		since := "-"
		if at := n.HeldSince(); !at.IsZero() {
			since = report.Took(max(r.Time.Sub(at), 0).Seconds())
		}
		rows.add(n.Node, "held", since, strings.Join(waits, ", "))
	}
	rows.flush()
	if more := len(r.Nodes) - reportNodes; more > 0 {
		fmt.Fprintf(b, "And %d more: kubectl gate report -o html --output-file report.html\n", more)
	}
}

// within returns a percentile, or "-" if there are no values.
func within(s report.Spread, seconds float64) string {
	if s.Count == 0 {
		return "-"
	}
	return report.Took(seconds)
}
