// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/report"
	"github.com/nodegate/nodegate/internal/timeline"
)

// testdata contains the JSON report on a small cluster.
func TestReportInJSON(t *testing.T) {
	raw, err := json.MarshalIndent(report.New(newFleet(7).facts(6, 3)), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "fleet.json", string(raw)+"\n")
}

var born = now.Add(-time.Hour)

func moment(seconds int) timeline.Moment {
	return timeline.Moment{At: born.Add(time.Duration(seconds) * time.Second)}
}

func doubt(d timeline.Doubt) timeline.Moment { return timeline.Moment{Doubt: d} }

// node returns an open node that is one hour old, with one gate that has two signals.
func node(ready, a, b, opened timeline.Moment) report.Node {
	g := timeline.Gate{
		Gate: "g", State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Closed: moment(0), Opened: opened,
		Signals: []timeline.Signal{{Name: "a", State: "Holds", Held: a}, {Name: "b", State: "Holds", Held: b}},
	}
	return report.Node{History: timeline.History{Node: "n", Created: born, Ready: ready, Gates: []timeline.Gate{g}, Opened: opened}}
}

// signalGates returns that gate.
func signalGates() *gateset.Set {
	return &gateset.Set{Gates: []gate.Gate{{Name: "g", Signals: []gate.NamedSignal{{Name: "a"}, {Name: "b"}}}}}
}

// of returns a report on nodes with that gate.
func of(nodes ...report.Node) *report.Report {
	for i := range nodes {
		nodes[i].Node = fmt.Sprint("n", i)
	}
	return report.New(&report.Facts{Time: now, Within: time.Hour, Nodes: nodes, Gates: signalGates()})
}

// The phases of a node cover the time from creation to opening without overlap.
func TestPhases(t *testing.T) {
	for _, c := range []struct {
		name string
		node report.Node
		want string
	}{
		{"one after the other", node(moment(40), moment(60), moment(90), moment(100)), "StartUp 40, Signal b 50, Settling 10; b last, alone 30"},
		{"the other way round", node(moment(40), moment(90), moment(60), moment(100)), "StartUp 40, Signal a 50, Settling 10; a last, alone 30"},
		{"all before it was ready", node(moment(80), moment(20), moment(30), moment(100)), "StartUp 30, Settling 70; b last, alone 0"},
		{"before it was ready, and opened", node(moment(200), moment(20), moment(30), moment(31)), "StartUp 30, Settling 1; b last, alone 0"},
		{"ready at an unknown time", node(doubt(timeline.Again), moment(20), moment(30), moment(31)), "Signal b 30, Settling 1; b last, alone 10"},
		{"a signal without a time", node(moment(40), moment(60), doubt(timeline.Untold), moment(100)), "StartUp 40, Untold 60"},
		{"a clock ahead of the opening", node(moment(40), moment(60), moment(105), moment(100)), "StartUp 40, Signal b 60; b last, alone 45"},
		{"opened again later", node(moment(40), moment(60), moment(90), moment(4000)), ""},
		{"opened by an unknown time", node(moment(40), moment(60), moment(90), doubt(timeline.Joined)), ""},
	} {
		r := of(c.node)
		var phases []string
		total := 0.0
		for _, p := range r.Gates[0].Phases {
			phases = append(phases, strings.TrimSpace(p.Kind+" "+p.Signal)+" "+fmt.Sprint(p.Seconds))
			total += p.Seconds
		}
		got := strings.Join(phases, ", ")
		for _, s := range r.Gates[0].Signals {
			if s.Last > 0 {
				got += fmt.Sprintf("; %s last, alone %v", s.Name, s.AloneSeconds)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if total != r.Gates[0].Opened.Max {
			t.Errorf("%s: the sum of the phases is %v, want %v", c.name, total, r.Gates[0].Opened.Max)
		}
	}
}

// A closeWhen gate that was closed stays closed while a signal is unknown, and waits for it.
func TestWaitingForUnknownSignals(t *testing.T) {
	n := node(moment(40), moment(60), doubt(timeline.Pending), doubt(timeline.Pending))
	n.Held, n.Gates[0].State, n.Gates[0].CloseWhen, n.Gates[0].Signals[1].State = true, v1alpha1.StateClosed, true, "Unknown"
	r := of(n)
	if a, b := r.Gates[0].Signals[0].Waiting, r.Gates[0].Signals[1].Waiting; a != 0 || b != 1 {
		t.Errorf("%d nodes wait for the signal that holds, and %d for the unknown one; want 0 and 1", a, b)
	}
	if text := r.Text(); !strings.Contains(text, "g/b") {
		t.Errorf("the text does not say that the node waits for g/b:\n%s", text)
	}
}

// waiting returns a node that gate g holds, which waits for both of its signals.
func waiting() report.Node {
	n := node(moment(40), doubt(timeline.Pending), doubt(timeline.Pending), doubt(timeline.Pending))
	g := &n.Gates[0]
	n.Held, g.State, g.Reason = true, v1alpha1.StateClosed, v1alpha1.ReasonBirth
	for i, message := range []string{"pod a is not ready", "condition B does not match"} {
		g.Signals[i].State, g.Signals[i].Message = "NotYet", message
	}
	return n
}

// page returns the page of a report, without its script and the data for it.
func page(t *testing.T, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(b.String(), "<script")
	return text
}

// A node counts for all signals that it waits for.
func TestWaitingForSeveralSignals(t *testing.T) {
	r := of(waiting())
	if a, b := r.Gates[0].Signals[0].Waiting, r.Gates[0].Signals[1].Waiting; a != 1 || b != 1 {
		t.Errorf("%d and %d nodes wait for the signals, want 1 and 1", a, b)
	}
	if text := r.Text(); !strings.Contains(text, "g/a, g/b") {
		t.Errorf("the text does not say that the node waits for both signals:\n%s", text)
	}
	for _, want := range []string{"waits for <b>a and b</b>", "<small>pod a is not ready</small><small>condition B does not match</small>"} {
		if text := page(t, r); !strings.Contains(text, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
}

// A gate that no signal can open at present shows the reason instead of the signals' messages. A
// gate whose state does not depend on its signals waits for none of them.
func TestBlockedGates(t *testing.T) {
	n := waiting()
	n.Gates[0].Blocked = "the node is unreachable"
	r := of(n)
	if text := page(t, r); !strings.Contains(text, "waits for <b>a and b</b>") || !strings.Contains(text, "<small>the node is unreachable</small>") || strings.Contains(text, "pod a") {
		t.Error("the page does not say why no signal can open the gate, or advises about its signals nevertheless")
	}
	n = waiting()
	n.Gates[0].Blocked, n.Gates[0].IgnoresSignals = "the gate is paused", true
	r = of(n)
	if s := r.Gates[0].Signals; s[0].Waiting != 0 || s[1].Waiting != 0 {
		t.Errorf("%d and %d nodes wait for the signals of a paused gate", s[0].Waiting, s[1].Waiting)
	}
	if text := r.Text(); strings.Contains(text, "g/") {
		t.Errorf("the text says that a node waits for signals of a paused gate:\n%s", text)
	}
	if text := page(t, r); strings.Contains(text, "waits for") || strings.Contains(text, "Waiting for") || !strings.Contains(text, "the gate is paused") {
		t.Error("the page says that a node waits for signals of a paused gate, or not that the gate is paused")
	}
}

// Nodes that opened long after their creation or had been in use before are counted
// separately, because they do not show how long new nodes take.
func TestExcludedNodes(t *testing.T) {
	again := moment(50)
	again.Doubt = timeline.Again
	held := node(moment(40), moment(60), doubt(timeline.Pending), doubt(timeline.Pending))
	held.Held, held.Gates[0].State, held.Gates[0].Overdue, held.Gates[0].Signals[1].State = true, v1alpha1.StateClosed, true, "NotYet"
	r := of(
		node(moment(40), moment(60), moment(90), moment(100)),
		node(moment(40), moment(60), moment(90), moment(4000)),
		node(moment(5000), moment(60), moment(90), again),
		held,
	)
	if r.Fleet.Nodes != 4 || r.Fleet.Held != 1 || r.Overdue != 1 || r.Later != 2 || r.Fleet.Opened.Count != 1 || r.Fleet.Ready.Count != 3 {
		t.Errorf("fleet %+v, %d overdue, %d later", r.Fleet, r.Overdue, r.Later)
	}
	if g := r.Gates[0]; g.Open != 3 || g.Closed != 1 || g.Overdue != 1 || g.Opened.Count != 1 || g.Signals[0].Waiting != 0 || g.Signals[1].Waiting != 1 {
		t.Errorf("gate %+v", g)
	}
}

// A gate with the effect PreferNoSchedule holds no node, so no node is overdue because of it.
func TestSoftGatesAreNotOverdue(t *testing.T) {
	n := node(moment(40), moment(60), doubt(timeline.Pending), moment(100))
	n.Gates[0].State, n.Gates[0].Overdue, n.Gates[0].Soft = v1alpha1.StateClosed, true, true
	r := of(n)
	if r.Fleet.Held != 0 || r.Overdue != 0 || r.Gates[0].Overdue != 1 {
		t.Errorf("%d nodes are held, and %d overdue; the gate is overdue on %d", r.Fleet.Held, r.Overdue, r.Gates[0].Overdue)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); strings.Contains(text, `"n":"n0","p":0,"z":0,"b":1772330400,"x":true`) || !strings.Contains(text, `"n":"n0","p":0,"z":0,"b":1772330400,"r"`) {
		t.Error("the page calls the node overdue")
	}
}

// An adopted taint may have been on a node before the adoption, and the report does not show the node's
// age instead.
func TestHeldForAnUnknownTime(t *testing.T) {
	adopted := moment(10)
	adopted.Doubt = timeline.Adopted
	n := report.Node{History: timeline.History{Node: "n", Created: born, Held: true, Gates: []timeline.Gate{
		{Gate: "g", State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonAdopted, Closed: adopted},
	}}}
	var page bytes.Buffer
	if err := of(n).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); !strings.Contains(text, `"u":true`) || !strings.Contains(text, `"for">at least 59m 50s<`) {
		t.Error("the page does not say that the node has been held for at least the time since the adoption")
	}
	if text := of(n).Text(); !strings.Contains(text, "at least 59m 50s") {
		t.Errorf("the text does not say that either:\n%s", text)
	}
	without := n
	without.Gates = []timeline.Gate{{Gate: "g", State: v1alpha1.StateClosed, Closed: doubt(timeline.Untold)}}
	page.Reset()
	if err := of(without).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); !strings.Contains(text, "unknown duration") {
		t.Error("the page does not say that the duration is unknown")
	}
	n.Gates = append(n.Gates, timeline.Gate{Gate: "later", State: v1alpha1.StateClosed, Closed: moment(3000)})
	page.Reset()
	if err := of(n).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); strings.Contains(text, `"u":true`) || !strings.Contains(text, "gate <b>later</b>") {
		t.Error("the gate that has held the node longest is not the one whose time is known")
	}
}

// If the API server's clock is ahead, a gate that has just closed has been closed for 0 s.
func TestHeldSinceTheFuture(t *testing.T) {
	n := report.Node{History: timeline.History{Node: "n", Created: born, Held: true, Gates: []timeline.Gate{
		{Gate: "g", State: v1alpha1.StateClosed, Closed: timeline.Moment{At: now.Add(2 * time.Second)}},
	}}}
	var page bytes.Buffer
	if err := of(n).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); strings.Contains(text, "-2s") || !strings.Contains(text, `<span class="for">0s</span>`) {
		t.Error("the page has a negative duration")
	}
}

// The time to the first pod starts at the opening, and is known only if the opening is. A pod
// that was bound too long after the node's creation is no part of the node's start, however
// late the node opened.
func TestFirstPods(t *testing.T) {
	bound := func(opened, bound int) report.Node {
		n := node(moment(40), moment(60), moment(90), moment(opened))
		n.FirstPod = &timeline.Pod{Bound: moment(bound).At}
		return n
	}
	without := node(moment(40), moment(60), moment(90), moment(100))
	r := of(bound(100, 103), bound(100, 100+2*3600), bound(3000, 3600), bound(3000, 3601), without)
	if s := r.Fleet.FirstPod; s.Count != 2 || s.P50 != 3 || s.Max != 600 {
		t.Errorf("first pods after %+v", s)
	}
}

// Nodes are sorted: longest held first, then slowest. A node whose taint was adopted has been held at
// least since then. Nothing is known of a node whose record cannot be read.
func TestOrder(t *testing.T) {
	adopted := moment(1000)
	adopted.Doubt = timeline.Adopted
	held := func(name string, since ...timeline.Moment) report.Node {
		n := report.Node{History: timeline.History{Node: name, Created: born, Held: true}}
		for _, s := range since {
			n.Gates = append(n.Gates, timeline.Gate{State: v1alpha1.StateClosed, Closed: s})
		}
		return n
	}
	open := func(name string, opened timeline.Moment) report.Node {
		return report.Node{History: timeline.History{Node: name, Created: born, Opened: opened}}
	}
	r := report.New(&report.Facts{Time: now, Within: time.Hour, Gates: &gateset.Set{}, Nodes: []report.Node{
		open("joined", doubt(timeline.Joined)), open("quick", moment(10)), held("short", moment(3000)), open("slow", moment(500)),
		held("unknown", doubt(timeline.Untold)), held("long", moment(0)), open("quick-too", moment(10)), held("adopted", adopted, doubt(timeline.Untold)),
	}})
	var got []string
	for _, n := range r.Nodes {
		got = append(got, n.Node)
	}
	if want := []string{"long", "adopted", "short", "unknown", "slow", "quick", "quick-too", "joined"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// Percentiles are computed by the nearest-rank method.
func TestPercentiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opened := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 300).Draw(t, "opened")
		var nodes []report.Node
		for _, s := range opened {
			nodes = append(nodes, node(moment(0), moment(0), moment(0), moment(s)))
		}
		got := of(nodes...).Fleet.Opened
		percentile := func(percent int) float64 {
			for candidate := 0; ; candidate++ {
				notLonger := 0
				for _, s := range opened {
					if s <= candidate {
						notLonger++
					}
				}
				if notLonger*100 >= percent*len(opened) {
					return float64(candidate)
				}
			}
		}
		if want := (report.Spread{Count: len(opened), P50: percentile(50), P90: percentile(90), P99: percentile(99), Max: percentile(100)}); got != want {
			t.Fatalf("%v: %+v, want %+v", opened, got, want)
		}
	})
}

// The text, the page's text and the page's script show the same durations. Times of the controller and
// of the report have fractions of seconds.
func TestDurationsAgree(t *testing.T) {
	at := func(d time.Duration) timeline.Moment { return timeline.Moment{At: born.Add(d)} }
	held := waiting()
	held.Gates[0].Closed = at(500 * time.Millisecond)
	r := of(node(moment(40), moment(60), moment(90), at(90*time.Second+460*time.Millisecond)), held)
	r.Time = born.Add(300*time.Second + 960*time.Millisecond)
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	states(t, r.Text(), []string{"held   5m 01s", "open   1m 31s", "50% within 1m 31s"}, nil) // 300.5 s and 90.5 s
	states(t, page.String(), []string{`class="for">5m 01s<`, `>1m 31s</td>`, `"now":1772330700.96,`, `"o":90.5,`}, nil)
}
