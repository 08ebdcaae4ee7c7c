// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/report"
	"github.com/nodegate/nodegate/internal/timeline"
)

// summary returns the first section of a page, which is what a reader sees first.
func summary(t *testing.T, r *report.Report) string {
	t.Helper()
	_, text, _ := strings.Cut(page(t, r), "<main>")
	text, _, found := strings.Cut(text, "</section>")
	if !found {
		t.Fatal("the page has no section")
	}
	return text
}

// states checks that a text contains some texts, and does not contain others.
func states(t *testing.T, text string, wanted, unwanted []string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("the summary does not contain %q:\n%s", want, text)
		}
	}
	for _, not := range unwanted {
		if strings.Contains(text, not) {
			t.Errorf("the summary contains %q:\n%s", not, text)
		}
	}
}

func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		held, nodes int
		want        string
	}{
		{0, 0, "There are no nodes"}, {0, 1, "0 of 1 node is held"}, {1, 1, "1 of 1 node is held"}, {0, 2, "0 of 2 nodes are held"},
		{1, 2, "1 of 2 nodes is held"}, {2, 2, "2 of 2 nodes are held"}, {1000, 12345, "1,000 of 12,345 nodes are held"},
	} {
		r := report.Report{Fleet: report.Group{Held: c.held, Nodes: c.nodes}}
		if got := r.Headline(); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.held, c.nodes, got, c.want)
		}
		if overdue := strings.Contains(r.Text(), "overdue"); overdue != (c.held > 0) || !strings.HasPrefix(r.Text(), c.want) {
			t.Errorf("%d of %d: the text begins with %.60q", c.held, c.nodes, r.Text())
		}
	}
}

// If something could not be read, the page says so first, and does not give the all-clear.
func TestSummaryOfAnIncompleteReport(t *testing.T) {
	r := of(node(moment(40), moment(60), moment(90), moment(100)))
	states(t, summary(t, r), []string{`"verdict good"`}, []string{"Incomplete"})
	r.Unread = []string{"listing a: forbidden", "listing b: forbidden", "listing c: forbidden", "listing d: forbidden", "listing e: forbidden"}
	states(t, summary(t, r), []string{"Incomplete", "listing a: forbidden", "listing c: forbidden", "2 more errors"}, []string{"good", "listing d"})
// Large numbers have thousands separators everywhere on the page.
func TestLargeNumbers(t *testing.T) {
	const n = 54321
	r := &report.Report{Fleet: report.Group{Nodes: n}, Overdue: n, Later: n}
	r.Gates = []report.Gate{{Gate: "g", Closed: n, Open: n, Overdue: n, Signals: []report.Signal{{Name: "s", Waiting: n}}}}
	r.Pools = []report.Group{{Name: "p", Nodes: n, Held: n}}
	text := page(t, r)
	if plain, separated := strings.Count(text, "54321"), strings.Count(text, "54,321"); plain != 0 || separated < 9 {
		t.Errorf("%d numbers have no separators, and %d have", plain, separated)
	}
}

	states(t, page(t, r), []string{"listing e: forbidden"}, nil)
}

// If a signal could not be read, it is unknown whether nodes wait for it.
func TestSummaryOfUnreadSignals(t *testing.T) {
	n := waiting()
	s := &n.Gates[0].Signals[0]
	s.State, s.Message, s.Held = gate.Unknown.String(), "DaemonSet a is unknown", doubt(timeline.Unread)
	r := of(n)
	states(t, summary(t, r), []string{"Waiting for <b>b</b> of gate <b>g</b> on 1 node.", "waits for <b>b</b>", "<small>DaemonSet a is unknown</small>"}, []string{"<b>a"})
	if waiting := r.Gates[0].Signals[0].Waiting; waiting != 0 {
		t.Errorf("%d nodes wait for the unread signal", waiting)
	}
	if text := r.Text(); !strings.Contains(text, "g/b, g/a (unknown)") {
		t.Errorf("the text does not say that it is unknown whether the node waits for a:\n%s", text)
	}
}

// The summary names the signals that most held nodes wait for, and says how many others there are.
func TestSummaryOfSignals(t *testing.T) {
	r := of(waiting(), waiting())
	states(t, summary(t, r), []string{"Waiting for <b>a</b> of gate <b>g</b> on 2 nodes; for <b>b</b> of gate <b>g</b> on 2 nodes."}, []string{" more."})
	for _, name := range []string{"c", "d", "e"} {
		r.Gates[0].Signals = append(r.Gates[0].Signals, report.Signal{Name: name, Waiting: 1})
	}
	states(t, summary(t, r), []string{"for <b>d</b> of gate <b>g</b> on 1 node; for 1 more."}, []string{"<b>e</b>"})
	r.Gates[0].Taint = "example.com/g:PreferNoSchedule"
	states(t, summary(t, r), nil, []string{"Waiting"}) // it holds no node
}

// If nothing keeps a gate closed, it waits for the controller, which may not be running.
func TestSummaryOfGatesThatAreAboutToOpen(t *testing.T) {
	n := waiting()
	for i := range n.Gates[0].Signals {
		n.Gates[0].Signals[i].State = gate.Holds.String()
	}
	n.Gates[0].Opens = true
	r := of(n, n, waiting())
	states(t, summary(t, r), []string{
		"Waiting for the controller, which is about to open gate <b>g</b>, on 2 nodes; for <b>a</b> of gate <b>g</b> on 1 node", "nothing keeps the gate closed",
	}, nil)
	if text := r.Text(); !strings.Contains(text, "g (about to open)") {
		t.Errorf("the text does not say that the gate is about to open:\n%s", text)
	}
}

// A closeWhen gate is closed while its signals hold.
func TestSummaryOfACloseWhenGate(t *testing.T) {
	n := waiting()
	g := &n.Gates[0]
	g.CloseWhen, g.Reason, g.Signals = true, v1alpha1.ReasonSignalsHold, g.Signals[:1]
	g.Signals[0].State = gate.Holds.String()
	r := of(n)
	r.Gates[0].CloseWhen = true
	states(t, summary(t, r), []string{"Waiting until <b>a</b> of gate <b>g</b> stops holding on 1 node.", "is closed while <b>a</b> holds"}, []string{"waits for", "SignalsHold"})
}

// The list of held nodes names all gates that hold a node, and marks it if one of them is overdue.
func TestSummaryOfSeveralGates(t *testing.T) {
	n := waiting()
	later := timeline.Gate{Gate: "h", State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRebooted, Closed: moment(3000), Overdue: true}
	soft := timeline.Gate{Gate: "soft", State: v1alpha1.StateClosed, Closed: moment(0), Soft: true}
	n.Gates = append(n.Gates, later, soft)
	text := summary(t, of(n))
	states(t, text, []string{`<li class="bad">`, "gate <b>g</b>", "also held by <b>h (overdue)</b>", `data-state="overdue" aria-label="1 overdue node">1</a>`}, []string{"soft"})
	n.Gates = n.Gates[:1]
	states(t, summary(t, of(n)), nil, []string{`class="bad"`, "also held", ">overdue<"})
}

// Without a NodeGate, a gate may have been deleted, or be declared in a file of the controller.
func TestSummaryOfAGateWithoutNodeGate(t *testing.T) {
	n := waiting()
	n.Gates[0].Gate, n.Gates[0].Unknown, n.Gates[0].Signals = "gone", true, nil
	r := of(n)
	states(t, summary(t, r), []string{"gate <b>gone</b>", "deleted, or the gate is declared in a file"}, nil)
	states(t, page(t, r), []string{"no NodeGate: deleted, or declared in a file"}, nil)
}
