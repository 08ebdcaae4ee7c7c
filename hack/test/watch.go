// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// grace is the time for a test binary to print its goroutines, and for the go
// command to end after the test binary.
const grace = time.Minute

// watch follows a run of go test. It ends a package without events like go test's
// -timeout: on SIGQUIT, the test binary prints its goroutines and exits.
type watch struct {
	*runner
	run     *invocation
	pid     int // of the go command, which leads a process group
	results *results
	began   time.Time
	dirs    map[string]string
	latest  map[*pkg]time.Time // time of the latest event
	steps   map[*pkg]int       // number of steps taken to end the package
	done    int
}

func newWatch(r *runner, i *invocation, pid int, results *results) *watch {
	w := &watch{
		runner: r, run: i, pid: pid, results: results, began: time.Now(),
		dirs: make(map[string]string), latest: make(map[*pkg]time.Time), steps: make(map[*pkg]int),
	}
	for _, p := range i.packages {
		w.dirs[p.path] = p.dir
	}
	return w
}

// follow processes events until there are no more.
func (w *watch) follow(lines <-chan line) error {
	tick := time.NewTicker(min(w.silence/4, time.Second))
	defer tick.Stop()
	var failures []error
	for {
		select {
		case l, more := <-lines:
			if !more {
				w.progress.Clear()
				return errors.Join(failures...)
			}
			if l.err != nil {
				failures = append(failures, l.err)
				continue
			}
			w.process(l.text)
		case s := <-w.signals:
			w.forward(s)
		case now := <-tick.C:
			w.limitSilence(now)
			w.progress.Update("%s", w.state(now))
		}
	}
}

// process processes a line.
func (w *watch) process(text []byte) {
	var e event
	if err := json.Unmarshal(text, &e); err != nil { // printed by a wrapper of the go command, for example
		w.results.other.add(string(text))
		w.progress.Line("%s", strings.TrimSuffix(string(text), "\n"))
		return
	}
	p := w.results.add(e)
	if p == nil {
		return
	}
	w.latest[p] = time.Now()
	switch {
	case e.Test == "" && p.ended():
		w.done++
		delete(w.latest, p)
		if e.Action != actionSkip { // a package without tests
			w.progress.Line("[%d/%d] %s", w.done, len(w.run.packages), p.summary())
		}
	case e.Action == actionFail && !strings.Contains(e.Test, "/"):
		w.progress.Line("%s: %s failed; its output follows at the end", short(p.path), e.Test)
	}
}

// summary returns a line about a package that has ended. It differs from go test's line,
// so that tools find each package in the output once, at the end.
func (p *pkg) summary() string {
	word, rest, _ := strings.Cut(strings.TrimSpace(p.verdict), "\t")
	rest = strings.ReplaceAll(strings.TrimPrefix(rest, p.path), "\t", " ")
	return fmt.Sprintf("%-4s %s%s", strings.TrimSpace(word), short(p.path), rest)
}

const module = "github.com/nodegate/nodegate"

// short is a package without its module.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// limitSilence ends test binaries that have not had an event for too long.
func (w *watch) limitSilence(now time.Time) {
	for p, latest := range w.latest {
		limit := w.silence
		if w.steps[p] > 0 {
			limit = min(grace, w.silence)
		}
		if now.Sub(latest) < limit {
			continue
		}
		w.latest[p] = now
		w.steps[p]++
		w.end(p, now)
	}
}

// end takes the next step to end a package without events.
func (w *watch) end(p *pkg, now time.Time) {
	if w.steps[p] == 1 {
		p.silence = &silence{limit: w.silence, running: p.describeRunning(now)}
		w.progress.Line("%s: no test event for %v; running: %s; sending SIGQUIT",
			short(p.path), w.silence, strings.Join(p.silence.running, ", "))
	}
	binaries := testBinaries(w.pid, p.path, w.dirs[p.path])
	switch {
	case w.steps[p] > 2 || len(binaries) == 0:
		send(-w.pid, syscall.SIGKILL)
	case w.steps[p] == 2:
		send(binaries[0], syscall.SIGKILL)
	default:
		send(binaries[0], syscall.SIGQUIT)
	}
}

// describeRunning returns the tests that run and for how long they do.
func (p *pkg) describeRunning(now time.Time) (list []string) {
	for _, t := range p.running() {
		list = append(list, fmt.Sprintf("%s (%s)", t.name, seconds(now.Sub(t.began))))
	}
	if len(list) == 0 {
		list = []string{"no test, but TestMain or an init function"}
	}
	return list
}

// forward forwards a signal to the go command and all processes that it has started.
// A second signal kills them.
func (w *watch) forward(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if w.interrupted != nil || !ok {
		number = syscall.SIGKILL
	} else {
		w.interrupted = s
	}
	send(-w.pid, number)
}

// state returns which tests run and for how long.
func (w *watch) state(now time.Time) string {
	var parts []string
	for _, p := range w.results.packages {
		if p.ended() {
			continue
		}
		running := p.running()
		if len(running) == 0 {
			parts = append(parts, short(p.path))
			continue
		}
		part := fmt.Sprintf("%s %s %s", short(p.path), running[0].name, seconds(now.Sub(running[0].began)))
		if len(running) > 1 {
			part += fmt.Sprintf(" and %d more", len(running)-1)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		parts = []string{"compiling and linking"}
	}
	return fmt.Sprintf("[%d/%d] %s: %s", w.done, len(w.run.packages), seconds(now.Sub(w.began)), strings.Join(parts, "; "))
}
