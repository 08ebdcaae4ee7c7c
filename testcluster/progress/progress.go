// SPDX-License-Identifier: Apache-2.0

// Package progress shows the progress of long-running work.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// plainInterval is the interval at which updates are written as lines if the
	// output is not a terminal.
	plainInterval = 10 * time.Second

	// columns is the length to which updates are truncated on a terminal. A line
	// that wraps could not be overwritten, and hardly any terminal is narrower.
	columns = 79
)

// A Progress writes permanent lines, and updates that replace each other. All its
// methods may be called on nil, and from several goroutines.
type Progress struct {
	mu       sync.Mutex
	writer   io.Writer
	terminal bool      // updates overwrite each other
	updated  bool      // the current line of the terminal is an update
	last     time.Time // when something was last written
}

// New returns a Progress that writes to writer. On a terminal, updates overwrite
// each other. It returns nil, which writes nothing, if writer is nil.
func New(writer io.Writer) *Progress {
	if writer == nil {
		return nil
	}
	p := &Progress{writer: writer}
	if file, ok := writer.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := file.Stat()
		null, _ := os.Stat(os.DevNull) // a device, too
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && !os.SameFile(info, null)
	}
	return p
}

// Line writes a permanent line.
func (p *Progress) Line(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(fmt.Sprintf(format, args...) + "\n")
	p.updated = false
}

// Update writes text that the next update or line overwrites.
func (p *Progress) Update(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		p.write(fit(fmt.Sprintf(format, args...)))
		p.updated = true
	case time.Since(p.last) >= plainInterval:
		p.write(fmt.Sprintf(format, args...) + "\n")
	}
}

// Clear removes the last update from the terminal, so that other output can
// follow.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.updated {
		p.write("")
		p.updated = false
	}
}

// fit truncates a text to one line of a terminal.
func fit(text string) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:columns-1]) + "…"
}

func (p *Progress) write(text string) {
	if p.updated {
		text = "\r\x1b[K" + text
	}
	// A failure to write progress is ignored.
	_, _ = io.WriteString(p.writer, text)
	p.last = time.Now()
}
