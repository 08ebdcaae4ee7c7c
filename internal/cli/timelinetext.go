// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/timeline"
)

// strokes are what bars are drawn with.
type strokes struct {
	// before is until the containers of a signal's pod had started, busy from then
	// until the signal held, waits from then until now, and until where there is no
	// pod.
	before, busy, waits rune
	// at is a moment, and cut one that is beyond the end.
	at, cut rune
	// marks are those of signals, by state.
	marks marks
}

var (
	drawn   = strokes{before: '─', busy: '━', waits: '╌', at: '●', cut: '▶', marks: signs}
	typed   = strokes{before: '-', busy: '=', waits: '.', at: '*', cut: '>', marks: plainMarks}
	doubted = map[timeline.Doubt]string{
		timeline.Pending:      "not yet",
		timeline.Untold:       "since when is not told",
		timeline.AfterOpening: "which is after the opening: it broke off, or was not waited for",
		timeline.Lost:         "it held when the gate opened, and does not now",
		timeline.BeforeNode:   "which is before this Node: clocks differ, or it is an earlier Node's",
		timeline.Again:        "which is not the first time: workloads came before",
		timeline.Joined:       "the gate was open when the node came to it",
		timeline.Unread:       "not known",
	}
)

// chart is how a timeline is drawn.
type chart struct {
	strokes
	// width is how many columns there are.
	width int
	// zero and end are what the bars begin and end with.
	zero, end time.Time
	// label is how wide names are.
	label int
}

const (
	pipeWidth = 100
	// whenWidth is how wide times are.
	whenWidth = 8
)

// chartFor is a chart as wide as the terminal.
func chartFor(out io.Writer) chart {
	if !isTerminal(out) {
		return chart{strokes: typed, width: pipeWidth}
	}
	width := pipeWidth
	if file, ok := out.(*os.File); ok {
		if w, _, err := term.GetSize(int(file.Fd())); err == nil {
			width = w
		}
	}
	return chart{strokes: drawn, width: min(max(width, 60), 160)}
}

// text is the timeline for people.
func (t *Timeline) text(c chart) string {
	c.fit(t)
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s was created %s, %s ago. %s\n\n", t.Node, at(t.Created), duration.HumanDuration(t.Time.Sub(t.Created)), t.stands())
	if c.zero != t.Created {
		fmt.Fprintf(&b, "A gate closed again at %s: times are told from then.\n\n", at(c.zero))
	}
	fmt.Fprintf(&b, "%s\n", c.axis())
	b.WriteString(c.row(" ", "ready", t.Ready, c.bar(t.Ready, time.Time{}, c.before, false)))
	for i := range t.Gates {
		c.gate(&b, &t.Gates[i], t.Time)
	}
	c.first(&b, t)
	if len(t.Gates) > 0 {
		fmt.Fprintf(&b, "\n%c its pod has not started   %c it has   %c it holds   %c still waiting\n", c.before, c.busy, c.at, c.waits)
	}
	for _, what := range t.Unread {
		fmt.Fprintf(&b, "Not known: %s.\n", what)
	}
	return b.String()
}

// stands says how the node stands.
func (t *Timeline) stands() string {
	opened, known := t.Opened.After(t.Created)
	switch {
	case t.Held:
		return "A gate holds it."
	case known:
		return "Its last gate opened after " + duration.HumanDuration(opened) + "."
	case len(t.Gates) == 0:
		return "No gate is known to have held it."
	}
	return "No gate holds it."
}

// fit has the chart reach from the node's creation, or from when a gate closed again
// where that was far later, to when its last gate opened, or to now if it is held.
func (c *chart) fit(t *Timeline) {
	c.zero, c.end = t.Created, t.Time
	if since := t.HeldSince(); since.After(t.Created.Add(10*time.Minute)) && !t.born() {
		c.zero = since
	}
	if opened := t.Opened; !t.Held && opened.Known() {
		c.end = opened.At
		if t.FirstPod != nil && t.FirstPod.Bound.Sub(c.zero) < 2*c.end.Sub(c.zero) {
			c.end = t.FirstPod.Bound
		}
	}
	if t.Ready.Known() && t.Ready.At.After(c.end) && t.Ready.At.Sub(c.zero) < 4*c.end.Sub(c.zero) {
		c.end = t.Ready.At
	}
	if !c.end.After(c.zero) {
		c.end = c.zero.Add(time.Second)
	}
	c.label = len("first pod")
	for i := range t.Gates {
		for _, s := range t.Gates[i].Signals {
			c.label = max(c.label, utf8.RuneCountInString(s.Name))
		}
	}
	c.label = min(c.label, 24)
}

// born tells whether a gate holds the node since its creation.
func (t *Timeline) born() bool {
	for i := range t.Gates {
		if g := &t.Gates[i]; g.State == v1alpha1.StateClosed && g.Reason == v1alpha1.ReasonBirth {
			return true
		}
	}
	return false
}

// columns is how wide bars are.
func (c *chart) columns() int { return max(c.width-c.indent()-1, 20) }

// indent is how far to the right bars begin.
func (c *chart) indent() int { return 2 + 2 + c.label + 1 + whenWidth + 2 }

func (c *chart) axis() string {
	line := []rune(strings.Repeat(" ", c.columns()+whenWidth))
	const ticks = 4
	length := c.end.Sub(c.zero)
	for i := range ticks + 1 {
		at := length * time.Duration(i) / ticks
		if at != at.Round(time.Second) && length < 10*time.Second {
			continue // nothing is known more finely
		}
		text := []rune(duration.HumanDuration(at.Round(time.Second)))
		begin := (c.columns() - 1) * i / ticks
		if i == ticks {
			begin = max(begin-len(text)+1, 0)
		}
		copy(line[begin:], text)
	}
	return strings.TrimRight(strings.Repeat(" ", c.indent())+string(line), " ")
}

// column is where a time is drawn.
func (c *chart) column(t time.Time) int {
	share := float64(t.Sub(c.zero)) / float64(c.end.Sub(c.zero))
	return int(min(max(share, 0), 1) * float64(c.columns()-1))
}

// bar draws how something came to be, whose containers had started at a time if
// that is known. What waits is drawn until the end.
func (c *chart) bar(m timeline.Moment, started time.Time, stroke rune, waits bool) string {
	if !m.Known() && !waits {
		return ""
	}
	end := c.columns() - 1
	if m.Known() {
		end = c.column(m.At)
	}
	line := []rune(strings.Repeat(string(stroke), end+1))
	if !started.IsZero() {
		for i := range c.column(started) {
			if i < len(line) {
				line[i] = c.before
			}
		}
	}
	switch {
	case !m.Known():
	case m.At.After(c.end):
		line[end] = c.cut
	default:
		line[end] = c.at
	}
	return string(line)
}

// row is a line: a mark, a name, when, and a bar, or what keeps it from being drawn.
func (c *chart) row(mark, name string, m timeline.Moment, bar string) string {
	if over := utf8.RuneCountInString(name) - c.label; over > 0 {
		name = string([]rune(name)[:c.label-1]) + "~"
	}
	if bar == "" {
		bar = doubted[m.Doubt]
	}
	line := fmt.Sprintf("  %s %s%s %*s  %s", mark, name, strings.Repeat(" ", c.label-utf8.RuneCountInString(name)), whenWidth, c.when(m), bar)
	return strings.TrimRight(line, " ") + "\n"
}

// when is how long after zero a moment was.
func (c *chart) when(m timeline.Moment) string {
	switch after := m.At.Sub(c.zero); {
	case m.At.IsZero():
		return ""
	case after < 0:
		return "-" + duration.HumanDuration(-after)
	default:
		return duration.HumanDuration(after)
	}
}

func (c *chart) gate(b *strings.Builder, g *timeline.Gate, now time.Time) {
	closed := g.State == v1alpha1.StateClosed
	fmt.Fprintf(b, "\n%s: %s\n", g.Gate, c.gateStands(g, now))
	if g.Blocked != "" {
		c.note(b, g.Blocked)
	}
	for i := range g.Signals {
		s := &g.Signals[i]
		waits := closed && !g.CloseWhen && !s.Held.Known() && s.State != "Holds"
		stroke, started := c.before, time.Time{}
		if waits {
			stroke = c.waits
		}
		if s.Pod != nil && !s.Pod.Started.IsZero() && (!s.Held.Known() || !s.Pod.Started.After(s.Held.At)) {
			started = s.Pod.Started
			if !waits {
				stroke = c.busy
			}
		}
		b.WriteString(c.row(c.marks[s.State], s.Name, s.Held, c.bar(s.Held, started, stroke, waits)))
		if s.State != "Holds" {
			c.note(b, s.Message)
		}
		c.pod(b, s.Pod, s.State != "Holds" && s.Pod != nil && strings.Contains(s.Message, s.Pod.Name))
	}
}

func (c *chart) gateStands(g *timeline.Gate, now time.Time) string {
	text := "closed" + lasting(" for ", g.Closed.At, now)
	if g.State != v1alpha1.StateClosed {
		text = "opened after " + c.when(g.Opened)
		if d := doubted[g.Opened.Doubt]; g.Opened.Doubt == timeline.Joined {
			text = d
		} else if d != "" {
			text += ", " + d
		}
	}
	more := string(cmp.Or(g.Reason, "no record"))
	if g.Overdue {
		more += ", overdue"
	}
	if g.Unknown {
		more += ", no such NodeGate"
	}
	return text + " (" + more + ")"
}

// note is a line of its own, beside the bars.
func (c *chart) note(b *strings.Builder, text string) {
	fmt.Fprintf(b, "%*s%s\n", c.indent(), "", text)
}

// pod says what is known of a signal's pod.
func (c *chart) pod(b *strings.Builder, p *timeline.Pod, named bool) {
	if p == nil {
		return
	}
	var steps []string
	for _, step := range []struct {
		name string
		at   time.Time
	}{{"created", p.Created}, {"bound", p.Bound}, {"started", p.Started}, {"ready", p.Ready}} {
		if !step.at.IsZero() {
			steps = append(steps, step.name+" "+c.when(timeline.Moment{At: step.at}))
		}
	}
	text := strings.Join(steps, ", ")
	if !named {
		text = p.Name + ": " + text
	}
	c.note(b, text)
}

// first says which pod of a workload came first.
func (c *chart) first(b *strings.Builder, t *Timeline) {
	switch p := t.FirstPod; {
	case p != nil:
		m := timeline.Moment{At: p.Bound}
		b.WriteString("\nThe first pod of a workload since then that is still there:\n")
		b.WriteString(c.row(" ", "first pod", m, c.bar(m, time.Time{}, c.before, false)))
		c.pod(b, p, false)
	case !t.Held && t.PodsRead && len(t.Gates) > 0:
		b.WriteString("\nNo pod of a workload that came since then is still there.\n")
	}
}
