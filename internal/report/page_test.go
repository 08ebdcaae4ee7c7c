// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/report"
	"github.com/nodegate/nodegate/internal/timeline"
)

var pages = flag.String("pages", "", "the directory to write sample pages to")

const megabyte = 1_000_000

// hostile is a name that a browser must not execute.
const hostile = `</script><script>document.title='x'</script><img src=x onerror=alert(1)>"'&<!--`

// hostileFleet has hostile names only.
func hostileFleet() *report.Facts {
	bad := newFleet(4)
	bad.hostile = hostile
	for i := range bad.gates.Gates {
		bad.gates.Gates[i].Name += hostile
	}
	facts := bad.facts(60, 6)
	facts.Unread = []string{hostile}
	return facts
}

// aheadFleet is a fleet whose API server's clock is ahead of the report's.
func aheadFleet() *report.Facts {
	facts := newFleet(3).facts(40, 4)
	facts.Time = facts.Time.AddDate(-1, 0, 0)
	return facts
}

// mixedFleet has nodes on which gates closed at different times. They are three days old, and
// were ready after 40 s.
func mixedFleet() *report.Facts {
	born := now.Add(-72 * time.Hour)
	after := func(d time.Duration) timeline.Moment { return timeline.Moment{At: born.Add(d)} }
	closed := func(name string, reason v1alpha1.Reason, ago time.Duration) timeline.Gate {
		return timeline.Gate{Gate: name, State: v1alpha1.StateClosed, Reason: reason, Closed: after(72*time.Hour - ago), Opened: doubt(timeline.Pending)}
	}
	opened := func(name string, took time.Duration, d timeline.Doubt) timeline.Gate {
		at := after(took)
		at.Doubt = d
		return timeline.Gate{Gate: name, State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Closed: after(0), Opened: at}
	}
	adopted := closed("b", v1alpha1.ReasonAdopted, time.Hour)
	adopted.Closed.Doubt = timeline.Adopted
	garbled := closed("b", v1alpha1.ReasonAdopted, time.Hour)
	garbled.Closed = doubt(timeline.Untold)
	soft := closed("soft", v1alpha1.ReasonRegression, time.Minute)
	soft.Soft, soft.Overdue = true, true
	node := func(name string, held bool, open timeline.Doubt, gates ...timeline.Gate) report.Node {
		return report.Node{History: timeline.History{
			Node: name, Created: born, Ready: after(40 * time.Second), Held: held, Opened: doubt(open), Gates: gates,
		}}
	}
	return &report.Facts{
		Time: now, Within: 24 * time.Hour, Gates: &gateset.Set{Gates: []gate.Gate{{Name: "a"}, {Name: "b"}, {Name: "soft"}}},
		Nodes: []report.Node{
			node("since-creation", true, timeline.Pending, closed("a", v1alpha1.ReasonBirth, 72*time.Hour), closed("b", v1alpha1.ReasonRebooted, time.Minute)),
			node("both-again", true, timeline.Pending, closed("a", v1alpha1.ReasonRebooted, 3*time.Hour), closed("b", v1alpha1.ReasonRegression, 5*time.Minute)),
			node("opened-before", true, timeline.Pending, opened("a", 2*time.Minute, ""), closed("b", v1alpha1.ReasonRebooted, 10*time.Minute)),
			node("older", true, timeline.Pending, opened("a", time.Hour, timeline.Older), closed("b", v1alpha1.ReasonRebooted, 20*time.Minute)),
			node("adopted", true, timeline.Pending, opened("a", time.Minute, ""), adopted),
			node("garbled", true, timeline.Pending, garbled),
			node("soft", false, timeline.NoGate, soft),
		},
	}
}

// blockedFleet has a node on which gate g waits for one of two signals, one on which it is paused in
// the same state, and one that is not Ready.
func blockedFleet() *report.Facts {
	unready := node(doubt(timeline.Pending), moment(60), doubt(timeline.Lost), moment(100))
	paused := waiting()
	paused.Gates[0].IgnoresSignals, paused.Gates[0].Blocked = true, "the gate is paused"
	f := &report.Facts{Time: now, Within: 24 * time.Hour, Nodes: []report.Node{waiting(), paused, unready}, Gates: signalGates()}
	for i, name := range []string{"waits", "paused", "unready"} {
		f.Nodes[i].Node = name
	}
	return f
}

func html(t testing.TB, f *report.Facts) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.New(f).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSamplePages writes the pages that 'make test-ui' opens in a browser, to
// -pages if it is given.
func TestSamplePages(t *testing.T) {
	dir := *pages
	if dir == "" {
		dir = t.TempDir()
	}
	for name, f := range map[string]*report.Facts{
		"fleet":   newFleet(1).facts(5000, 250),
		"healthy": newFleet(2).facts(40, 1_000_000),
		"empty":   {Time: now, Gates: &gateset.Set{}},
		"hostile": hostileFleet(),
		"ahead":   aheadFleet(),
		"mixed":   mixedFleet(),
		"blocked": blockedFleet(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".html"), html(t, f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A page about 5,000 nodes is small enough for e-mail, even with many gates.
func TestPageOfALargeFleetIsSmall(t *testing.T) {
	many := newFleet(3).facts(5000, 100)
	for i := range many.Nodes {
		n := &many.Nodes[i]
		for len(n.Gates) < 12 {
			n.Gates = append(n.Gates, n.Gates[0])
		}
	}
	for name, f := range map[string]*report.Facts{"three gates": newFleet(1).facts(5000, 100), "twelve gates": many} {
		if size := len(html(t, f)); size > 5*megabyte {
			t.Errorf("%s: the page has %d bytes", name, size)
		} else {
			t.Logf("%s: the page has %d bytes", name, size)
		}
	}
}

// The data of a page has the signals of the first nodes only, and says how many these are.
func TestPageHasSignalsOfTheFirstNodes(t *testing.T) {
	for nodes, all := range map[int]bool{40: true, 5000: false} {
		_, after, _ := strings.Cut(string(html(t, newFleet(1).facts(nodes, 100))), `id="data">`)
		text, _, _ := strings.Cut(after, "</script>")
		var data struct {
			Full  int `json:"full"`
			Nodes []struct {
				Gates []struct {
					Signals []any `json:"q"`
				} `json:"g"`
			} `json:"nodes"`
		}
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			t.Fatal(err)
		}
		if len(data.Nodes) != nodes || (data.Full == nodes) != all {
			t.Errorf("%d of %d rows have signals, all: %t; want %d rows", data.Full, len(data.Nodes), all, nodes)
		}
		for i, row := range data.Nodes {
			for _, g := range row.Gates {
				if full := i < data.Full; len(g.Signals) > 0 != full {
					t.Fatalf("row %d of %d has %d signals of a gate, and %d rows have them", i, nodes, len(g.Signals), data.Full)
				}
			}
		}
	}
}

// No name becomes markup, and nothing is loaded.
func TestPageOfHostileNames(t *testing.T) {
	page := string(html(t, hostileFleet()))
	if n := strings.Count(strings.ToLower(page), "</script"); n != 2 {
		t.Errorf("the page has %d script end tags, want those of the data and of the script", n)
	}
	for _, markup := range []string{"<img", "<script>document", "<!--", "http://", "https://"} {
		if strings.Contains(page, markup) {
			t.Errorf("the page contains %q", markup)
		}
	}
	if !strings.Contains(page, "&lt;img") || !strings.Contains(page, `\u003cimg`) {
		t.Error("the page does not contain the names as text and as data")
	}
}

func BenchmarkReport(b *testing.B) {
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprint(size, "nodes"), func(b *testing.B) {
			for b.Loop() {
				html(b, newFleet(1).facts(size, 100))
			}
		})
	}
}
