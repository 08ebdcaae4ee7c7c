// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A view shows the progress of the nodes. It gets every snapshot, and shows as
// much as its output allows.
type view interface {
	show(snapshot)
	// close shows the last snapshot permanently and restores the output.
	close()
}

// newView returns a view that redraws itself if out is a terminal, unless plain
// output is requested. Otherwise, it returns a view that writes lines.
func newView(out *os.File, plain bool) view {
	if plain || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(out.Fd())) {
		return &lines{out: out}
	}
	return newScreen(out, func() (width, height int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	})
}

// lines is a view that writes a line for each change, at most one a second.
type lines struct {
	out     io.Writer
	printed string        // the last line, without its time
	at      time.Duration // when that was
	last    snapshot
	any     bool
}

func (l *lines) show(s snapshot) {
	l.last = s
	if l.any && s.elapsed-l.at < time.Second {
		return
	}
	l.print()
}

func (l *lines) close() {
	if l.any {
		l.print()
	}
}

func (l *lines) print() {
	text := line(&l.last)
	if text == l.printed {
		return
	}
	l.any, l.printed, l.at = true, text, l.last.elapsed
	fmt.Fprintf(l.out, "%4.0fs  %s\n", l.last.elapsed.Seconds(), text)
}

func line(s *snapshot) string {
	t := s.total()
	return fmt.Sprintf("nodes %d/%d: joining %d, held by cni+init %d, by cni %d, by init %d, open %d; pods bound %d/%d",
		t.nodes(), s.nodes, t.states[joining], t.states[heldByBoth], t.states[heldByCNI], t.states[heldByInit],
		t.states[open], t.pods, s.podsWanted)
}

// Control sequences that every terminal supports.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// screen is a view that is redrawn in place. It uses the terminal's alternate
// screen and starts at the top. No line is wider than the terminal, so that
// resizing does not break the picture.
type screen struct {
	out  io.Writer
	size func() (width, height int)
	last snapshot
}

func newScreen(out io.Writer, size func() (width, height int)) *screen {
	fmt.Fprint(out, enterScreen)
	return &screen{out: out, size: size}
}

func (s *screen) show(now snapshot) {
	s.last = now
	width, height := s.size()
	rows := frame(&now, width)
	rows = rows[:min(len(rows), max(height, 1))]
	fmt.Fprint(s.out, home+strings.Join(rows, clearLine+"\r\n")+clearLine+clearBelow)
}

func (s *screen) close() {
	fmt.Fprint(s.out, leaveScreen)
	if s.last.nodes == 0 {
		return
	}
	width, _ := s.size()
	fmt.Fprintln(s.out, strings.Join(frame(&s.last, width), "\n"))
}

// frame returns a table of the waves and a bar, no wider than width.
func frame(s *snapshot, width int) []string {
	t := s.total()
	rows := table(s, width)
	counts := fmt.Sprintf(" %d/%d open, pods %d/%d, %.0fs",
		t.states[open], s.nodes, t.pods, s.podsWanted, s.elapsed.Seconds())
	rows = append(rows, bar(t.states[open], t.nodes(), s.nodes, width-len(counts))+counts,
		"# open   = held or joining   . to come")
	for i, row := range rows {
		rows[i] = strings.TrimRight(row[:min(len(row), max(width, 0))], " ")
	}
	return rows
}

// A column of the table, under a title of two words.
type column struct {
	title [2]string
	width int
	value func(*waveCounts) int
}

func stateColumn(above, title string, which ...state) column {
	return column{[2]string{above, title}, max(len(above), len(title)) + 2, func(w *waveCounts) int {
		sum := 0
		for _, s := range which {
			sum += w.states[s]
		}
		return sum
	}}
}

var (
	nodesColumn = column{[2]string{"", "nodes"}, 7, (*waveCounts).nodes}
	podsColumn  = column{[2]string{"pods", "bound"}, 7, func(w *waveCounts) int { return w.pods }}
	openColumn  = stateColumn("", "open", open)

	wideTable = []column{
		nodesColumn, stateColumn("", "joining", joining), stateColumn("held by", "cni+init", heldByBoth),
		stateColumn("held by", "cni", heldByCNI), stateColumn("held by", "init", heldByInit), openColumn, podsColumn,
	}
	narrowTable = []column{nodesColumn, stateColumn("", "held", heldByBoth, heldByCNI, heldByInit), openColumn, podsColumn}
)

const nameWidth = len("wave 1")

// table returns a table that fits, or nothing, because a truncated number would
// be wrong.
func table(s *snapshot, width int) []string {
	for _, columns := range [][]column{wideTable, narrowTable} {
		needed := nameWidth
		for _, c := range columns {
			needed += c.width
		}
		if needed <= width {
			return drawTable(s, columns)
		}
	}
	return nil
}

func drawTable(s *snapshot, columns []column) []string {
	row := func(name string, cell func(column) string) string {
		text := fmt.Sprintf("%-*s", nameWidth, name)
		for _, c := range columns {
			text += fmt.Sprintf("%*s", c.width, cell(c))
		}
		return text
	}
	rows := []string{
		row("", func(c column) string { return c.title[0] }),
		row("", func(c column) string { return c.title[1] }),
	}
	for i := range s.waves {
		rows = append(rows, row(fmt.Sprintf("wave %d", i+1), func(c column) string { return count(c.value(&s.waves[i])) }))
	}
	t := s.total()
	return append(rows, row("all", func(c column) string { return count(c.value(&t)) }), "")
}

// count formats zero as a dot, so that other numbers stand out.
func count(n int) string {
	if n == 0 {
		return "."
	}
	return fmt.Sprint(n)
}

// bar draws two parts of a whole, one over the other.
func bar(done, begun, whole, width int) string {
	width = min(width-2, 60)
	if width < 1 || whole < 1 {
		return ""
	}
	full, half := done*width/whole, begun*width/whole
	return "[" + strings.Repeat("#", full) + strings.Repeat("=", half-full) + strings.Repeat(".", width-half) + "]"
}
