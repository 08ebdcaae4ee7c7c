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

// A state is a node's progress towards receiving pods.
type state int

const (
	joining    state = iota // started, and not registered yet
	heldByBoth              // closed by both gates
	heldByCNI               // closed by gate cni alone
	heldByInit              // closed by gate init alone
	open                    // closed by none
	states
)

// A snapshot contains the data that the live view shows at one moment.
type snapshot struct {
	elapsed    time.Duration
	nodes      int // planned
	podsWanted int
	waves      [waveCount]waveCounts
}

// waveCounts count the nodes of one wave that have been started, by state, and
// the workload pods bound to them.
type waveCounts struct {
	states [states]int
	pods   int
}

func (w *waveCounts) nodes() int {
	sum := 0
	for _, n := range w.states {
		sum += n
	}
	return sum
}

// total returns the sum of all waves.
func (s *snapshot) total() waveCounts {
	var t waveCounts
	for i := range s.waves {
		for k, n := range s.waves[i].states {
			t.states[k] += n
		}
		t.pods += s.waves[i].pods
	}
	return t
}

// A view shows the progress of the nodes: on a terminal, as a table that is redrawn in
// place, and elsewhere as a line for each change, at most one a second.
type view struct {
	out     io.Writer
	inPlace bool
	rows    int           // of the table on the terminal
	printed string        // the last line, without its time
	at      time.Duration // when that was
}

func newView(out *os.File, plain bool) *view {
	width, height, err := term.GetSize(int(out.Fd())) // fails unless it is a terminal
	fits := err == nil && width > tableWidth && height > waveCount+5
	return &view{out: out, inPlace: fits && !plain && os.Getenv("TERM") != "dumb"}
}

// show shows a snapshot. The last one is shown in any case.
func (v *view) show(s *snapshot, last bool) {
	if v.inPlace {
		if v.rows > 0 {
			fmt.Fprintf(v.out, "\x1b[%dA", v.rows) // cursor up
		}
		text := table(s)
		v.rows = strings.Count(text, "\n")
		fmt.Fprint(v.out, strings.ReplaceAll(text, "\n", "\x1b[K\n")) // clear the rest of each line
		return
	}
	text := line(s)
	if text == v.printed || v.printed != "" && !last && s.elapsed-v.at < time.Second {
		return
	}
	v.printed, v.at = text, s.elapsed
	fmt.Fprintf(v.out, "%4.0fs  %s\n", s.elapsed.Seconds(), text)
}

func line(s *snapshot) string {
	t := s.total()
	return fmt.Sprintf("nodes %d/%d: joining %d, held by cni+init %d, by cni %d, by init %d, open %d; pods bound %d/%d",
		t.nodes(), s.nodes, t.states[joining], t.states[heldByBoth], t.states[heldByCNI], t.states[heldByInit],
		t.states[open], t.pods, s.podsWanted)
}

const (
	tableRow   = "%-6s%7s%9s%10s%9s%9s%6s%7s\n"
	tableWidth = 63
)

func table(s *snapshot) string {
	text := fmt.Sprintf(tableRow, "", "", "", "held by", "held by", "held by", "", "pods") +
		fmt.Sprintf(tableRow, "", "nodes", "joining", "cni+init", "cni", "init", "open", "bound")
	row := func(name string, w *waveCounts) {
		cells := []any{name, count(w.nodes())}
		for _, n := range w.states {
			cells = append(cells, count(n))
		}
		text += fmt.Sprintf(tableRow, append(cells, count(w.pods))...)
	}
	for i := range s.waves {
		row(fmt.Sprintf("wave %d", i+1), &s.waves[i])
	}
	t := s.total()
	row("all", &t)
	return text + fmt.Sprintf("%d/%d nodes open, %d/%d pods bound, %.0fs\n", t.states[open], s.nodes, t.pods, s.podsWanted, s.elapsed.Seconds())
}

// count formats zero as a dot, so that other numbers stand out.
func count(n int) string {
	if n == 0 {
		return "."
	}
	return fmt.Sprint(n)
}
