// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/timeline"
)

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := unwatched(out).(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func marksFor(out io.Writer) printer.Marks {
	if isTerminal(out) {
		return printer.UnicodeMarks
	}
	return printer.ASCIIMarks
}

// pipeWidth is the width of timelines if the output is not a terminal.
const pipeWidth = 100

// layoutFor returns a layout with the width of the terminal.
func layoutFor(out io.Writer) timeline.Layout {
	if !isTerminal(out) {
		return timeline.Layout{Width: pipeWidth}
	}
	width := pipeWidth
	if file, ok := unwatched(out).(*os.File); ok {
		if w, _, err := term.GetSize(int(file.Fd())); err == nil {
			width = w
		}
	}
	return timeline.Layout{Unicode: true, Width: min(max(width, 60), 160)}
}

// progressLine shows progress in one line of a terminal. If the output is not a
// terminal, it shows nothing. It is safe for concurrent use.
type progressLine struct {
	mu   sync.Mutex
	out  io.Writer
	last string
}

func newProgressLine(out io.Writer) *progressLine {
	if !isTerminal(out) {
		out = nil
	}
	return &progressLine{out: out}
}

func (l *progressLine) show(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil || text == l.last {
		return
	}
	l.last = text
	fmt.Fprint(l.out, "\r\x1b[K"+text)
}

func (l *progressLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != "" {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	l.last = ""
}
