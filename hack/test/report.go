// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/nodegate/nodegate/testcluster/components"
)

// report is the output after all runs have ended.
type report struct {
	runs []*finished
	// strict makes skipped tests failures, except those with one of the reasons below.
	strict bool
	// older is the older version of Kubernetes on which the tests run, or empty.
	older string
	// again are the packages that ran twice because the race detector itself failed.
	again []string
	// interrupted is the signal that prevented some tests from running.
	interrupted os.Signal
}

// shortReason ends the message with which tests are skipped under -short. See
// clustertest.SkipIfShort.
const shortReason = "run without -short"

// olderReason ends the message with which tests are skipped on an older Kubernetes. Its group is
// the version that they need. See clustertest.SkipBefore.
var olderReason = regexp.MustCompile(`run with Kubernetes (1\.\d+) or newer$`)

// longReason ends the message with which tests are skipped that run only by a flag of
// their package, because they wait for minutes. See e2e/node.
const longReason = "run with -long"

// givenReason ends the message with which tests are skipped beside a program that cannot be
// built from Go modules, and whose path is not given. See e2e/neighbours.
const givenReason = "run with -medik8s"

// finished is a run of go test that has ended.
type finished struct {
	command string
	short   bool
	events  string // the file of raw events
	results *results
	exit    error // of the go command
	readErr error // of reading its events
}

func (f *finished) failed() bool { return f.exit != nil || f.readErr != nil || f.results.failed() }

// write prints the skipped tests, where the complete output is, and then go test's
// own output: passing packages first, failing ones last.
func (r *report) write(w io.Writer) (ok bool) {
	unexpected := r.writeSkips(w)
	for _, path := range r.again {
		fmt.Fprintf(w, "ran twice, because the race detector itself failed: %s\n", path)
	}
	for _, f := range r.runs {
		fmt.Fprintf(w, "complete output of %s: %s\n", f.command, f.events)
	}
	fmt.Fprintln(w)
	for _, f := range r.runs {
		for _, p := range f.results.packages {
			if !p.failed() && unexpected[p] == nil {
				fmt.Fprint(w, p.verdict)
			}
		}
	}
	ok = len(unexpected) == 0
	for _, f := range r.runs {
		for _, p := range f.results.packages {
			if p.failed() {
				p.writeFailure(w, f.results)
			}
			if skips := unexpected[p]; skips != nil {
				writeUnexpected(w, p, skips)
			}
		}
		if f.failed() {
			ok = false
			f.writeError(w)
		}
	}
	if r.interrupted != nil {
		ok = false
		fmt.Fprintf(w, "interrupted (%v): packages without a line above have not been tested\n", r.interrupted)
	}
	if !ok {
		fmt.Fprintln(w, "FAIL")
	}
	return ok
}

// writeError prints why the go command failed if no package did.
func (f *finished) writeError(w io.Writer) {
	if f.results.failed() {
		return
	}
	for _, build := range f.results.builds {
		fmt.Fprint(w, build.String())
	}
	fmt.Fprintf(w, "%s%s: %v\n", f.results.other.String(), f.command, errors.Join(f.exit, f.readErr))
}

// writeFailure prints a failing package as go test does.
func (p *pkg) writeFailure(w io.Writer, r *results) {
	if build := r.builds[p.build]; build != nil {
		fmt.Fprint(w, build.String())
		delete(r.builds, p.build) // once is enough for all packages that it breaks
	}
	for _, t := range p.roots {
		t.write(w, p)
	}
	fmt.Fprint(w, p.unattributed.String())
	if p.silence != nil {
		fmt.Fprintf(w, "no test event for %v; running: %s\n", p.silence.limit, strings.Join(p.silence.running, ", "))
	}
	output := p.output.String()
	fmt.Fprint(w, output)
	if !strings.HasSuffix(output, p.verdict) || p.verdict == "" {
		fmt.Fprintf(w, "FAIL\t%s\n", p.path)
	}
}

// write prints a test that has failed or has not ended, and its subtests of that
// kind.
func (t *test) write(w io.Writer, p *pkg) {
	switch {
	case t.action == actionFail:
		verdict := t.verdict
		if verdict == "" {
			verdict = fmt.Sprintf("--- FAIL: %s\n", t.name)
		}
		fmt.Fprint(w, indent(verdict, t.depth))
	case t.paused:
		return
	default:
		// go test reports no verdict if the test binary ends first.
		took := max(p.last.Sub(t.began), 0)
		fmt.Fprint(w, indent(fmt.Sprintf("--- FAIL: %s (%.2fs)\n    did not end before the test binary did\n", t.name, took.Seconds()), t.depth))
	}
	fmt.Fprint(w, t.output.indented(t.depth))
	for _, child := range t.children {
		child.write(w, p)
	}
}

// writeSkips lists skipped tests with their reasons, and returns those that must
// not be skipped.
func (r *report) writeSkips(w io.Writer) map[*pkg][]skip {
	unexpected := make(map[*pkg][]skip)
	short, long, given := 0, 0, 0
	for _, f := range r.runs {
		for _, p := range f.results.packages {
			var older []string
			for _, s := range p.skips {
				switch {
				case f.short && strings.HasSuffix(s.output, shortReason):
					short++
				case r.needsNewer(s.output) != "":
					older = append(older, fmt.Sprintf("%s (%s)", s.name, r.needsNewer(s.output)))
				case strings.HasSuffix(s.output, longReason):
					long++
				case strings.HasSuffix(s.output, givenReason):
					given++
				default:
					fmt.Fprintf(w, "skipped: %s %s: %s\n", p.path, s.name, s.output)
					if r.strict {
						unexpected[p] = append(unexpected[p], s)
					}
				}
			}
			if len(older) > 0 {
				fmt.Fprintf(w, "skipped on Kubernetes %s: %d tests of %s that need a newer one: %s\n",
					r.older, len(older), p.path, strings.Join(older, ", "))
			}
		}
	}
	if short > 0 {
		fmt.Fprintf(w, "skipped: %d tests that need a control plane or take long (run without -short)\n", short)
	}
	if long > 0 {
		fmt.Fprintf(w, "skipped: %d tests that wait for minutes (run with -long)\n", long)
	}
	if given > 0 {
		fmt.Fprintf(w, "skipped: %d tests beside a program that must be given (run with -medik8s)\n", given)
	}
	return unexpected
}

// needsNewer returns the version of Kubernetes that a test's message requires, if the tests run on
// an older one, or "".
func (r *report) needsNewer(message string) string {
	match := olderReason.FindStringSubmatch(message)
	if match == nil || r.older == "" || !components.Before(r.older, match[1]) {
		return ""
	}
	return match[1]
}

func writeUnexpected(w io.Writer, p *pkg, skips []skip) {
	for _, s := range skips {
		fmt.Fprintf(w, "--- SKIP: %s\n    %s\n", s.name, s.output)
	}
	fmt.Fprintf(w, "FAIL\t%s [skipped tests]\n", p.path)
}

// seconds returns a human-readable duration.
func seconds(d time.Duration) string {
	return d.Round(time.Second).String()
}
