// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// screen is where people read: lines that stay, and on a terminal a last line that
// is replaced.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	width    int
	shown    bool // a line that is to be replaced
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out, terminal: isTerminal(out), width: 80}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 20 {
		s.width = columns
	}
	return s
}

// isTerminal reports whether the file is a terminal that understands control
// sequences. /dev/null is a device, too.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	term := os.Getenv("TERM")
	return err == nil && !os.SameFile(info, null) && term != "" && term != "dumb"
}

func (s *screen) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fmt.Fprint(s.out, text)
}

// progress shows a line until the next one is printed. Where lines cannot be
// replaced, it stays.
func (s *screen) progress(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	if line == "" {
		return
	}
	if !s.terminal {
		fmt.Fprint(s.out, line+"\n")
		return
	}
	if runes := []rune(line); len(runes) >= s.width {
		line = string(runes[:s.width-2]) + "…"
	}
	fmt.Fprint(s.out, line)
	s.shown = true
}

func (s *screen) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r"+strings.Repeat(" ", s.width-1)+"\r")
		s.shown = false
	}
}
