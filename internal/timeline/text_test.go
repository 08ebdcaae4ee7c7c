// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gateset"
)

// testdata contains the expected output of each case, for terminals, for pipes and as
// JSON.
func TestText(t *testing.T) {
	for _, c := range clitest.Lives {
		t.Run(c.Name, func(t *testing.T) {
			facts, pods := c.Facts()
			answer := &Timeline{Time: clitest.Now}
			if pods == nil {
				answer.Unread = []string{"listing the pods of node n1: pods is forbidden"}
			}
			gates := gateset.Reported(c.Gates(t))
			d := gates.Decide(&facts, clitest.Now)
			answer.History = Trace(gates.Gates, &facts, &d, pods, clitest.Now)
			raw, err := json.MarshalIndent(answer, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, c.Name+".json", string(raw)+"\n")
			for kind, layout := range map[string]Layout{"terminal": {Unicode: true, Width: 110}, "pipe": {Width: 100}} {
				text := answer.Text(layout)
				clitest.Golden(t, c.Name+"."+kind+".txt", text)
				for line := range strings.Lines(text) {
					if bars := strings.ContainsAny(line, "*●=━"); bars && len([]rune(line)) > layout.Width {
						t.Errorf("the line is wider than %d columns: %s", layout.Width, line)
					}
				}
				if strings.ContainsAny(answer.Text(layout), "─━╌●✓✗") && kind == "pipe" {
					t.Error("the output for a pipe is not ASCII")
				}
			}
		})
	}
}

// Times have a resolution of a second, so a short axis has no finer ticks.
func TestShortAxis(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for seconds, want := range map[int]string{1: "0s 1s", 2: "0s 1s 2s", 3: "0s 3s", 8: "0s 2s 4s 6s 8s"} {
		c := chart{strokes: asciiStrokes, width: 100, zero: begin, end: begin.Add(time.Duration(seconds) * time.Second)}
		if got := strings.Join(strings.Fields(c.axis()), " "); got != want {
			t.Errorf("the axis of %d s is %q, want %q", seconds, got, want)
		}
	}
}

// Moments have a time relative to the start of the axis, and a mark, which differs after its end.
func TestMomentsOfAChart(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	c := chart{strokes: asciiStrokes, zero: zero, end: zero.Add(100 * time.Second), label: 1} // the narrowest chart
	for name, test := range map[string]struct {
		moment Moment
		row    string
	}{
		"before the start": {Moment{At: zero.Add(-5 * time.Second)}, "    s      -5s  *"},
		"at the start":     {Moment{At: zero}, "    s       0s  *"},
		"in the middle":    {Moment{At: zero.Add(50 * time.Second)}, "    s      50s  ---------*"},
		"at the end":       {Moment{At: zero.Add(100 * time.Second)}, "    s     100s  -------------------*"},
		"after the end":    {Moment{At: zero.Add(150 * time.Second)}, "    s    2m30s  ------------------->"},
		"unknown":          {Moment{Doubt: Untold}, "    s           time unknown"},
		"doubtful":         {Moment{At: zero, Doubt: Lost}, "    s       0s  held when the gate opened, does not hold now"},
	} {
		if got := c.row(" ", "s", test.moment, c.bar(test.moment, time.Time{}, c.before, false)); got != test.row+"\n" {
			t.Errorf("%s: %q, want %q", name, got, test.row)
		}
	}
}

// Long names of signals are truncated, so that there is space for bars.
func TestLongNames(t *testing.T) {
	const name = "a-name-with-40-characters-is-a-valid-one"
	answer := &Timeline{Time: clitest.Now, History: History{Node: "n1", Created: clitest.Now.Add(-time.Hour), Gates: []Gate{
		{Gate: "a", State: v1alpha1.StateClosed, Signals: []Signal{{Name: name, State: "NotYet", Held: Moment{Doubt: Pending}}}},
	}}}
	if text := answer.Text(Layout{Width: 100}); !strings.Contains(text, " "+name[:23]+"~ ") || strings.Contains(text, name[:24]) {
		t.Errorf("the name is not truncated to 24 characters:\n%s", text)
	}
}

// The text neither gives the age of an adopted taint, which is unknown, nor counts the age of
// a node as the time to open of a gate that is younger.
func TestTextOfDoubtfulTimes(t *testing.T) {
	zero := time.Unix(1_000_000, 0)
	at := func(minutes int, d Doubt) Moment {
		return Moment{At: zero.Add(time.Duration(minutes) * time.Minute), Doubt: d}
	}
	answer := &Timeline{Time: zero.Add(2 * time.Hour), History: History{Node: "n1", Created: zero, PodsRead: true, Opened: Moment{Doubt: Older}, Gates: []Gate{
		{Gate: "a", State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonAdopted, Closed: at(110, Adopted), Opened: Moment{Doubt: Pending}, Soft: true},
		{Gate: "b", State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Closed: Moment{Doubt: Untold}, Opened: at(60, Older)},
	}}}
	text := answer.Text(Layout{Width: 100})
	for _, want := range []string{"No gate holds it.", "a: closed for at least 10m (Adopted)", "b: opened after 60m, the node is older than the gate (SignalsHold)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "since the opening") {
		t.Errorf("the text counts from an opening whose time is not that of the node:\n%s", text)
	}
}

// The guide shows the output of the case works.
func TestGuideShowsOutput(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/report.md")
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.ReadFile("testdata/works.terminal.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "```\n"+string(output)+"```\n") {
		t.Errorf("docs/guides/report.md does not contain this output:\n%s", output)
	}
}

// If the API server's clock is ahead, a node that has just been created is 0 s old.
func TestCreatedInTheFuture(t *testing.T) {
	answer := &Timeline{Time: clitest.Now, History: History{Node: "n1", Created: clitest.Now.Add(5 * time.Second)}}
	if text := answer.Text(Layout{Width: 100}); !strings.Contains(text, "was created 2026-03-01T03:00:05Z, 0s ago.") {
		t.Errorf("the age is not 0s:\n%s", text)
	}
}

// The API has only the present state: a node that is not ready may have been, and a gate that is
// closed need not have been closed before.
func TestTextStatesOnlyWhatIsKnown(t *testing.T) {
	l := &Timeline{Time: clitest.Now, History: History{
		Node: "n1", Created: clitest.Now.Add(-48 * time.Hour), Ready: Moment{Doubt: Pending}, Held: true, Opened: Moment{Doubt: Pending},
		Gates: []Gate{{
			Gate: "sick", State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonSignalsHold, CloseWhen: true,
			Closed: Moment{At: clitest.Now.Add(-time.Hour)}, Opened: Moment{Doubt: Pending},
		}},
	}}
	text := l.Text(Layout{Width: 100})
	for _, unknown := range []string{"not yet", "again"} {
		if strings.Contains(text, unknown) {
			t.Errorf("%q is not known:\n%s", unknown, text)
		}
	}
}
