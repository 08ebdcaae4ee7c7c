// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodegate/nodegate/testcluster/progress"
)

// invocation is one invocation of go test: packages of one module with the same
// flags.
type invocation struct {
	name     string // of the file of raw events
	module   string // its directory in the repository
	dir      string
	flags    []string
	packages []goPackage
	extra    []string // arguments of go test after the packages
	short    bool
}

// goPackage is a package under test.
type goPackage struct {
	path, dir string
}

func (i *invocation) String() string {
	var b strings.Builder
	b.WriteString("go test")
	if i.module != "." {
		b.WriteString(" -C " + i.module)
	}
	for _, flag := range i.flags {
		b.WriteString(" " + flag)
	}
	fmt.Fprintf(&b, " (%d packages)", len(i.packages))
	return b.String()
}

// args are the arguments of the go command. Tests have no limit on how long they
// work: the watch limits how long they are silent.
func (i *invocation) args() []string {
	args := append([]string{"test", "-json", "-timeout=0"}, i.flags...)
	for _, p := range i.packages {
		args = append(args, p.path)
	}
	return append(args, i.extra...)
}

// runner runs invocations of go test, one after the other.
type runner struct {
	progress *progress.Progress
	out      string        // the directory for files of raw events
	silence  time.Duration // how long a package may be without events
	signals  <-chan os.Signal
	// interrupted is the first signal that came.
	interrupted os.Signal
}

// run runs go test and follows its events until it ends.
func (r *runner) run(i *invocation) (*finished, error) {
	path := filepath.Join(r.out, i.name+".json")
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("creating the file of events: %w", err)
	}
	defer file.Close()
	f := &finished{command: i.String(), short: i.short, events: path, results: newResults()}

	command := exec.CommandContext(context.Background(), "go", i.args()...)
	command.Dir = i.dir
	inGroup(command)
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe: %w", err)
	}
	stderr := &tee{progress: r.progress}
	command.Stderr = stderr
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting go test: %w", err)
	}
	lines := make(chan line)
	go read(stdout, file, lines)
	w := newWatch(r, i, command.Process.Pid, f.results)
	f.readErr = w.follow(lines)
	f.exit = command.Wait()
	f.results.other.add(stderr.text.String())
	return f, nil
}

// line is a line that go test has printed, or the error that ended reading.
type line struct {
	text []byte
	err  error
}

// read copies lines to the file and sends them to the channel.
func read(from io.Reader, file io.Writer, to chan<- line) {
	defer close(to)
	reader := bufio.NewReader(from)
	for {
		text, err := reader.ReadBytes('\n')
		if len(text) > 0 {
			if _, err := file.Write(text); err != nil {
				to <- line{err: fmt.Errorf("writing raw events: %w", err)}
			}
			to <- line{text: text}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				to <- line{err: fmt.Errorf("reading from go test: %w", err)}
			}
			return
		}
	}
}

// tee prints what the go command itself prints, and keeps it.
type tee struct {
	progress *progress.Progress
	text     text
}

func (t *tee) Write(b []byte) (int, error) {
	t.text.add(string(b))
	t.progress.Line("%s", strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}
