// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder is a test that records its failure.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatal(args ...any) {
	r.failure = fmt.Sprint(args...)
	runtime.Goexit()
}

// A package whose TestMain does not call Main learns what to do.
func TestSharedWithoutMain(t *testing.T) {
	r := &recorder{TB: t}
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		Shared(r)
	}()
	const want = "TestMain must call clustertest.Main, which stops the clusters of the package's tests"
	if panicked := <-ended; panicked != nil || r.failure != want {
		t.Errorf("failure %q, panic %v; want %q", r.failure, panicked, want)
	}
}
