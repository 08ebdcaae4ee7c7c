// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// detectorFailure begins the message with which the race detector ends a program because of
// an error of its own.
const detectorFailure = "ThreadSanitizer: CHECK failed"

// raceReport begins the race detector's report of a race.
const raceReport = "WARNING: DATA RACE"

// failedOfDetector reports whether the race detector's own error is all that has failed.
func (p *pkg) failedOfDetector() bool {
	return p.failed() && p.detectorFailed && !p.raced && p.silence == nil && !slices.ContainsFunc(p.roots, (*test).failed)
}

// failed reports whether the test or one of its subtests has failed. Those that the end of
// the program interrupted have not.
func (t *test) failed() bool {
	return t.action == actionFail || slices.ContainsFunc(t.children, (*test).failed)
}

// withoutDetectorFailures removes the packages that only the race detector's own error ended
// from the results, and returns their paths.
func (f *finished) withoutDetectorFailures() (paths []string) {
	f.results.packages = slices.DeleteFunc(f.results.packages, func(p *pkg) bool {
		again := p.failedOfDetector()
		if again {
			paths = append(paths, p.path)
		}
		return again
	})
	if len(paths) > 0 && !f.results.failed() {
		f.exit = nil // which was about these packages
	}
	return paths
}

// only returns the invocation for some of its packages.
func (i *invocation) only(paths []string) *invocation {
	again := *i
	again.name += "-again"
	again.packages = slices.DeleteFunc(slices.Clone(i.packages), func(p goPackage) bool { return !slices.Contains(paths, p.path) })
	return &again
}

// runTwice runs an invocation, and then once more the packages that only the race detector's
// own error ended.
func (r *runner) runTwice(i *invocation, summary *report) error {
	f, err := r.run(i)
	if err != nil {
		return err
	}
	summary.runs = append(summary.runs, f)
	if r.interrupted != nil {
		return nil
	}
	again := f.withoutDetectorFailures()
	if len(again) == 0 {
		return nil
	}
	summary.again = append(summary.again, again...)
	r.progress.Line("the race detector itself failed (%s); running once more: %s", detectorFailure, strings.Join(again, ", "))
	if f, err = r.run(i.only(again)); err != nil {
		return err
	}
	summary.runs = append(summary.runs, f)
	return nil
}
