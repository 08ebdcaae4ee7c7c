// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// plainInterval is how often an update becomes a line of its own where lines
// cannot be overwritten.
const plainInterval = 10 * time.Second

// progress tells a person what is going on: lines that stay, and updates of
// which only the last one matters. All its methods may be called on nil, and
// from several goroutines.
type progress struct {
	mu       sync.Mutex
	writer   io.Writer
	terminal bool      // updates overwrite each other
	updated  bool      // the current line of the terminal is an update
	last     time.Time // when something was last written
}

// newProgress returns nil, which says nothing, if writer is nil.
func newProgress(writer io.Writer) *progress {
	if writer == nil {
		return nil
	}
	p := &progress{writer: writer}
	if file, ok := writer.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// line writes a line that stays.
func (p *progress) line(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(fmt.Sprintf(format, args...) + "\n")
	p.updated = false
}

// update writes what the next update or line may overwrite.
func (p *progress) update(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		p.write(fmt.Sprintf(format, args...))
		p.updated = true
	case time.Since(p.last) >= plainInterval:
		p.write(fmt.Sprintf(format, args...) + "\n")
	}
}

// clear removes the last update from the terminal: what comes next is not ours.
func (p *progress) clear() {
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

func (p *progress) write(text string) {
	if p.updated {
		text = "\r\x1b[K" + text
	}
	// That nobody can be told is no reason to stop.
	_, _ = io.WriteString(p.writer, text)
	p.last = time.Now()
}
