// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
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
	Elapsed     float64
	Output      string
	FailedBuild string
	ImportPath  string // of builds, instead of Package
}

// Actions of events.
const (
	actionStart       = "start"
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

// parse parses one line. It returns an error if the line is not an event, because
// a version of the go command or a wrapper may print something else.
func parse(line []byte) (event, error) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return event{}, fmt.Errorf("reading an event of go test: %w", err)
	}
	return e, nil
}

// isFraming reports whether a line of output only says which test the following
// lines belong to. go test does not print such lines without -v.
func isFraming(line string) bool {
	for _, prefix := range []string{"=== RUN   ", "=== PAUSE ", "=== CONT  ", "=== NAME  ", "=== ATTR  "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// isVerdict reports whether a line is the one with which go test reports how the
// test ended.
func isVerdict(line, test string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "--- ")
	if !ok {
		return false
	}
	_, rest, ok = strings.Cut(rest, ": ")
	return ok && strings.HasPrefix(rest, test+" (")
}
