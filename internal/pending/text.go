// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/report"
)

// namesMax is the number of nodes that are named for a gate.
const namesMax = 5

// Text returns the explanation as human-readable text.
func (e *Explanation) Text() string {
	var b strings.Builder
	e.writeSummary(&b)
	for i := range e.Gates {
		e.Gates[i].write(&b, e.Time)
	}
	writeOthers(&b, "Temporary on nodes that are still being set up; these nodes count as ones on which it could run", e.Temporary)
	writeOthers(&b, "Nodes that would not fit it even if all gates were open", e.Others)
	if len(e.Unread) > 0 {
		b.WriteByte('\n')
	}
	for _, what := range e.Unread {
		fmt.Fprintf(&b, "Incomplete: %s.\n", what)
	}
	return b.String()
}

func writeOthers(b *strings.Builder, title string, others []Other) {
	if len(others) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	rows := printer.NewRows(b)
	for _, o := range others {
		rows.Row(printer.Count(o.Nodes, "node"), o.Message)
	}
	rows.Flush()
}

func (e *Explanation) writeSummary(b *strings.Builder) {
	object := strings.ToUpper(e.Object[:1]) + e.Object[1:]
	switch {
	case e.Rejected != "":
		fmt.Fprintf(b, "The API server rejects the pods of %s, and no gate is the cause: %s.\n", e.Object, gate.Printable(e.Rejected))
		return
	case e.Rejection != nil:
		e.Rejection.write(b, object, e.Node)
		return
	case e.Node != "":
		fmt.Fprintf(b, "%s is bound to node %s: gates have no influence on where it runs any more.\n", object, e.Node)
		return
	case e.KeptOff == 0:
		fmt.Fprintf(b, "No gate keeps %s off any of %d nodes.\n", e.Object, e.Nodes)
	default:
		fmt.Fprintf(b, "Gates keep %s off %d of %d nodes. If they were open, it could run on %s of these.\n", e.Object, e.KeptOff, e.Nodes, orNone(e.WouldFit))
	}
	if n := len(e.Fit); n > 0 {
		fmt.Fprintf(b, "It could run on %s now, as far as this command checks: %s.\n", printer.Count(n, "node"), printer.Some(e.Fit, namesMax))
	}
	if len(e.SchedulingGates) > 0 {
		fmt.Fprintf(b, "The scheduler does not consider it as long as it has the scheduling gates %s.\n", strings.Join(e.SchedulingGates, ", "))
	}
}

func (r *Rejection) write(b *strings.Builder, object, node string) {
	fmt.Fprintf(b, "%s was bound to node %s, whose kubelet rejected it. It never starts.\n", object, node)
	rows := printer.NewRows(b)
	rows.Row("reason", gate.Printable(r.Reason))
	if r.Message != "" {
		rows.Row("message", strings.Join(strings.Fields(r.Message), " ")) // it may have several lines
	}
	rows.Row("cause", "probably, the node was not ready for the pod: for example, a device plugin had not registered yet, or a NoExecute gate was closed")
	if r.Controller == "" {
		rows.Row("replaced", "by no controller: delete the pod, and create it again")
	} else {
		rows.Row("replaced", "by "+gate.Printable(r.Controller)+", if at all")
	}
	rows.Row("next", "kubectl gate why "+node)
	rows.Flush()
}

func (g *Gate) write(b *strings.Builder, now time.Time) {
	fmt.Fprintf(b, "\n%s: closed on %s; the pod could run on %s of them\n", g.Gate, printer.Count(len(g.Nodes)+g.Others, "node"), orNone(len(g.Nodes)))
	rows := printer.NewRows(b)
	rows.Row("taint", g.Taint)
	for i, w := range g.WaitsFor {
		label := ""
		if i == 0 {
			label = "waits for"
		}
		rows.Row(label, gate.Printable(w.text()))
	}
	if g.Usually != nil {
		rows.Row("usually", usual(g.Usually))
	}
	if len(g.Nodes) > 0 {
		names := make([]string, 0, namesMax)
		for _, n := range g.Nodes[:min(len(g.Nodes), namesMax)] {
			names = append(names, n.Node+printer.Elapsed(" for ", n.Since, now))
		}
		rows.Row("nodes", gate.FirstNames(names, len(g.Nodes)))
		rows.Row("next", "kubectl gate why "+g.Nodes[0].Node)
	}
	rows.Flush()
}

func (w *Wait) text() string {
	text := w.Message
	if w.Reason != "" {
		text += fmt.Sprintf(" (%s)", w.Reason)
	}
	if w.Signal != "" {
		text = w.Signal + ": " + text
	}
	if w.Nodes > 1 {
		text += ", and the same on " + printer.Count(w.Nodes-1, "more node")
	}
	return text
}

func orNone(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// usual says how long the gate usually takes to open on a new node.
func usual(s *report.Spread) string {
	human := func(seconds float64) string {
		return duration.HumanDuration(time.Duration(seconds * float64(time.Second)))
	}
	return fmt.Sprintf("opens within %s of the node's creation; within %s on nine of ten nodes (of %d)", human(s.P50), human(s.P90), s.Count)
}
