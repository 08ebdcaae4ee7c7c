// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
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

// If something could not be read, the page says so first, and does not give the all-clear.
func TestSummaryOfAnIncompleteReport(t *testing.T) {
	r := of(node(moment(40), moment(60), moment(90), moment(100)))
	states(t, summary(t, r), []string{`"verdict good"`}, []string{"Incomplete"})
	r.Unread = []string{"listing a: forbidden", "listing b: forbidden", "listing c: forbidden", "listing d: forbidden", "listing e: forbidden"}
	states(t, summary(t, r), []string{"Incomplete", "listing a: forbidden", "listing c: forbidden", "2 more errors"}, []string{"good", "listing d"})
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
	states(t, summary(t, of(waiting(), waiting())), []string{"Waiting for <b>a</b> of gate <b>g</b> on 2 nodes; for <b>b</b> of gate <b>g</b> on 2 nodes."}, []string{" more."})
	more := waiting()
	gates := signalGates()
	for _, name := range []string{"c", "d", "e"} {
		gates.Gates[0].Signals = append(gates.Gates[0].Signals, gate.NamedSignal{Name: name})
		more.Gates[0].Signals = append(more.Gates[0].Signals, timeline.Signal{Name: name, State: gate.NotYet.String()})
	}
	r := report.New(&report.Facts{Time: now, Gates: gates, Nodes: []report.Node{waiting(), more}})
	states(t, summary(t, r), []string{"for <b>d</b> of gate <b>g</b> on 1 node; for 1 more."}, []string{"<b>e</b>"})
}

// Whether a gate holds a node depends on the taint that it has there, which may be the gate's recloseTaint.
func TestSummaryOfSoftTaints(t *testing.T) {
	soft := waiting()
	soft.Held, soft.Gates[0].Soft = false, true
	r := of(soft, soft)
	r.Gates[0].Taint = "example.com/g:NoSchedule"
	states(t, summary(t, r), []string{"0 of 2 nodes are held"}, []string{"Waiting"})
	if s := r.Gates[0].Signals[0]; s.Waiting != 2 {
		t.Errorf("%d nodes wait for the signal, want 2", s.Waiting)
	}
	soft.Gates[0].Opens = true
	states(t, summary(t, of(soft)), nil, []string{"Waiting"})
	r = of(waiting(), soft)
	r.Gates[0].Taint = "example.com/g:PreferNoSchedule"
	states(t, summary(t, r), []string{"Waiting for <b>a</b> of gate <b>g</b> on 1 node; for <b>b</b> of gate <b>g</b> on 1 node."}, nil)
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

// A gate is about to close on nodes that rebooted or announced their shutdown, and stays open while no
// controller runs. The report then says so instead of giving the all-clear. A gate in DryRun does not
// close, and a soft gate holds no node.
func TestSummaryOfGatesThatAreAboutToClose(t *testing.T) {
	for _, c := range []struct {
		change string
		closes bool
	}{{"mode: Enforce", true}, {"mode: DryRun, existingNodes: Close", false}, {"reclosePolicy: Never", false}, {"recloseTaint: {key: example.com/soft, effect: PreferNoSchedule}", false}} {
		r := report.New(leaving(t, c.change))
		closing := "The controller is about to close gate cni on 3 nodes, unless it is not running or a gate's budget is used up."
		if c.closes {
			states(t, summary(t, r), []string{strings.ReplaceAll(closing, "'", "&#39;"), "verdict warn", "0 of 4 nodes are held"}, nil)
			states(t, r.Text(), []string{"0 of 4 nodes are held.\n" + closing + "\n"}, nil)
			continue
		}
		states(t, summary(t, r), []string{"verdict good"}, []string{"about to close"})
		states(t, r.Text(), nil, []string{"about to close"})
	}
}

// A gate that is not in force holds no new node, which the report says, instead of giving the all-clear.
func TestSummaryOfGatesThatAreNotInForce(t *testing.T) {
	r := of(node(moment(40), moment(60), moment(90), moment(100)))
	states(t, summary(t, r), []string{"verdict good"}, []string{"not in force"})
	r.Gates[0].NotInForce = "taint key example.com/g is not allowed"
	states(t, summary(t, r), []string{"Gates that are not in force: g.", "verdict warn"}, nil)
	states(t, r.Text(), []string{"0 of 1 node is held.\nGates that are not in force: g.\n"}, nil)
}

// leaving returns the facts about three nodes on which gate cni opened before two of them rebooted and one
// announced its shutdown. A fourth one is older than the gate. change is added to the gate's spec.
func leaving(t *testing.T, change string) *report.Facts {
	t.Helper()
	var g v1alpha1.NodeGate
	spec := "{taint: {key: example.com/cni, effect: NoSchedule}, openWhen: [{name: fit, label: {key: fit}}], " + change + "}"
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: cni}\nspec: "+spec), &g); err != nil {
		t.Fatal(err)
	}
	g.CreationTimestamp.Time = born.Add(-time.Hour)
	f := &report.Facts{Time: now, Within: time.Hour, Gates: gateset.Of([]v1alpha1.NodeGate{g}, gate.KeyPolicy{}, gateset.IgnoreStatus)}
	all := make([]gate.Facts, 4)
	for i := range all {
		record := gate.Record{State: v1alpha1.StateOpen, Since: moment(90).At, Reason: v1alpha1.ReasonSignalsHold, Boot: "a", Taint: "example.com/cni:NoSchedule", Source: v1alpha1.SourceCRD}
		all[i].Node = gate.Node{
			Name: fmt.Sprint("n", i), Created: born, BootID: "b", Records: map[string]string{"cni": record.String()},
			Conditions: []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue, Transition: moment(80).At}},
		}
	}
	all[2].Node.BootID, all[2].Node.ShuttingDown = "a", true
	all[3].Node.Created, all[3].Node.Records = born.Add(-2*time.Hour), nil
	f.Trace(all, nil, "")
	return f
}
