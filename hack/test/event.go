// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"time"
)

// event is a line of 'go test -json'. See 'go doc cmd/test2json' and 'go help
// buildjson'.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	Test        string
	Output      string
	FailedBuild string
	ImportPath  string // of builds, instead of Package
}

// Actions of events.
const (
	actionRun         = "run"
	actionPause       = "pause"
	actionContinue    = "cont"
	actionPass        = "pass"
	actionBench       = "bench"
	actionFail        = "fail"
	actionSkip        = "skip"
	actionOutput      = "output"
	actionBuildOutput = "build-output"
)

// framing matches a line of output that only names the test of the following lines. go test
// does not print such lines without -v.
var framing = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME|ATTR) +`)

// important matches output that may be the reason why another test, or the package, has
// failed. Among parallel tests, go test can only guess which one printed a line.
var important = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: |SIGQUIT: |runtime: )`)

// isVerdict reports whether a line is go test's result of the test.
func isVerdict(line, test string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "--- ")
	if !ok {
		return false
	}
	_, rest, ok = strings.Cut(rest, ": ")
	return ok && strings.HasPrefix(rest, test+" (")
}
