// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/printer"
)

// strokes are the characters that bars consist of.
type strokes struct {
	// before is used until the containers of a signal's pod started, and if there is
	// no pod. busy is used from then until the signal held, and waits from then until
	// now if the signal does not hold yet.
	before, busy, waits rune
	// at marks a moment, and cut a moment after the end of the chart.
	at, cut rune
	// marks are the symbols of signals, by state.
	marks printer.Marks
}

var (
	unicodeStrokes = strokes{before: '─', busy: '━', waits: '╌', at: '●', cut: '▶', marks: printer.UnicodeMarks}
	asciiStrokes   = strokes{before: '-', busy: '=', waits: '.', at: '*', cut: '>', marks: printer.ASCIIMarks}
	doubtTexts     = map[Doubt]string{
		Pending:      "not at present",
		Untold:       "time unknown",
		AfterOpening: "after the opening: the signal stopped holding meanwhile, or was not waited for",
		Lost:         "held when the gate opened, does not hold now",
		BeforeNode:   "before this Node was created: clocks differ, or it belongs to a former Node",
		Again:        "not the first time: there were workload pods before",
		Joined:       "already open when the node became a member",
		NoGate:       "no gate is known to have held the node at its creation",
		Older:        "the node is older than the gate",
		Adopted:      "the node already carried the taint",
		Unread:       "unknown",
	}
)

// Layout specifies how a timeline is drawn.
type Layout struct {
	// Unicode specifies whether to use characters that are not in ASCII.
	Unicode bool
	// Width is the number of columns.
	Width int
}

// whenWidth is the width of times.
const whenWidth = 8

// chart is a timeline that is being drawn.
type chart struct {
	strokes
	width int
	// zero and end are the start and the end of the time axis.
	zero, end time.Time
	// label is the width of names.
	label int
}

// Text returns the timeline as human-readable text.
func (t *Timeline) Text(l Layout) string {
	c := chart{strokes: asciiStrokes, width: l.Width}
	if l.Unicode {
		c.strokes = unicodeStrokes
	}
	c.fit(t)
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s was created %s, %s ago. %s\n\n", t.Node, printer.Time(t.Created), duration.HumanDuration(max(t.Time.Sub(t.Created), 0)), t.summary())
	if c.zero != t.Created {
		fmt.Fprintf(&b, "A gate has been closed since %s: times are relative to that.\n\n", printer.Time(c.zero))
	}
	fmt.Fprintf(&b, "%s\n", c.axis())
	b.WriteString(c.row(" ", "ready", t.Ready, c.bar(t.Ready, time.Time{}, c.before, false)))
	for i := range t.Gates {
		c.gate(&b, &t.Gates[i], t.Time)
	}
	c.first(&b, t)
	if len(t.Gates) > 0 {
		fmt.Fprintf(&b, "\n%c pod not started   %c pod started   %c signal holds   %c still waiting\n", c.before, c.busy, c.at, c.waits)
	}
	for _, what := range t.Unread {
		fmt.Fprintf(&b, "Incomplete: %s.\n", what)
	}
	return b.String()
}

// summary returns a sentence about the state of the node.
func (t *Timeline) summary() string {
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

// fit sets the time axis and the width of names. The axis starts at the node's
// creation, or when a gate closed if that was much later. It ends when the last
// gate opened, or now if the node is held.
func (c *chart) fit(t *Timeline) {
	c.zero, c.end = t.Created, t.Time
	if since := t.HeldSince(); since.After(t.Created.Add(10*time.Minute)) && !t.HeldSinceCreation() {
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

// columns returns the width of bars.
func (c *chart) columns() int { return max(c.width-c.indent()-1, 20) }

// indent returns the column at which bars start.
func (c *chart) indent() int { return 2 + 2 + c.label + 1 + whenWidth + 2 }

func (c *chart) axis() string {
	line := []rune(strings.Repeat(" ", c.columns()+whenWidth))
	const ticks = 4
	length := c.end.Sub(c.zero)
	for i := range ticks + 1 {
		at := length * time.Duration(i) / ticks
		if at != at.Round(time.Second) && length < 10*time.Second {
			continue // times have a resolution of a second
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

// column returns the column of a time.
func (c *chart) column(t time.Time) int {
	share := float64(t.Sub(c.zero)) / float64(c.end.Sub(c.zero))
	return int(min(max(share, 0), 1) * float64(c.columns()-1))
}

// bar returns a bar that ends at a moment. started is the time at which the containers
// started, or zero if unknown. If waits is set and the moment is unknown, the bar
// extends to the end.
func (c *chart) bar(m Moment, started time.Time, stroke rune, waits bool) string {
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

// row returns a line with a mark, a name, a time, and a bar or the reason why there is
// none.
func (c *chart) row(mark, name string, m Moment, bar string) string {
	if utf8.RuneCountInString(name) > c.label {
		name = string([]rune(name)[:c.label-1]) + "~"
	}
	if bar == "" {
		bar = doubtTexts[m.Doubt]
	}
	line := fmt.Sprintf("  %s %s%s %*s  %s", mark, name, strings.Repeat(" ", c.label-utf8.RuneCountInString(name)), whenWidth, c.when(m), bar)
	return strings.TrimRight(line, " ") + "\n"
}

// when returns the time from zero to a moment.
func (c *chart) when(m Moment) string {
	switch after := m.At.Sub(c.zero); {
	case m.At.IsZero():
		return ""
	case after < 0:
		return "-" + duration.HumanDuration(-after)
	default:
		return duration.HumanDuration(after)
	}
}

func (c *chart) gate(b *strings.Builder, g *Gate, now time.Time) {
	closed := g.State == v1alpha1.StateClosed
	fmt.Fprintf(b, "\n%s: %s\n", g.Gate, c.gateSummary(g, now))
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

func (c *chart) gateSummary(g *Gate, now time.Time) string {
	elapsed := " for "
	if g.Closed.Doubt == Adopted {
		elapsed = " for at least "
	}
	text := "closed" + printer.Elapsed(elapsed, g.Closed.At, now)
	if g.State != v1alpha1.StateClosed {
		text = "opened after " + c.when(g.Opened)
		if d := doubtTexts[g.Opened.Doubt]; g.Opened.Doubt == Joined {
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
		more += ", no NodeGate: deleted, or declared in a file"
	}
	return text + " (" + more + ")"
}

// note writes a line without a bar.
func (c *chart) note(b *strings.Builder, text string) {
	fmt.Fprintf(b, "%*s%s\n", c.indent(), "", text)
}

// pod writes what is known about a signal's pod.
func (c *chart) pod(b *strings.Builder, p *Pod, named bool) {
	if p == nil {
		return
	}
	var steps []string
	for _, step := range []struct {
		name string
		at   time.Time
	}{{"created", p.Created}, {"bound", p.Bound}, {"started", p.Started}, {"ready", p.Ready}} {
		if !step.at.IsZero() {
			steps = append(steps, step.name+" "+c.when(Moment{At: step.at}))
		}
	}
	text := strings.Join(steps, ", ")
	if !named {
		text = p.Name + ": " + text
	}
	c.note(b, text)
}

// first writes which workload pod came first.
func (c *chart) first(b *strings.Builder, t *Timeline) {
	switch p := t.FirstPod; {
	case p != nil:
		m := Moment{At: p.Bound}
		b.WriteString("\nFirst workload pod bound since the opening that still exists:\n")
		b.WriteString(c.row(" ", "first pod", m, c.bar(m, time.Time{}, c.before, false)))
		c.pod(b, p, false)
	case !t.Held && t.PodsRead && !t.Opened.At.IsZero():
		b.WriteString("\nNo workload pod that was bound since the opening still exists.\n")
	}
}
