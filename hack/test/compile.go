// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodegate/nodegate/testcluster/components"
)

// compile downloads and compiles what the invocations need before the first test
// runs, so that no test shares the machine with a compiler, or waits for one.
// Linking happens in go test, which keeps no linked test binaries.
//
// go test reports compile errors with the tests' results.
func (r *runner) compile(ctx context.Context, out io.Writer, sources []components.Source) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := components.Build(ctx, components.Options{Sources: sources, Progress: out})
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case r.interrupted = <-r.signals:
		cancel()
		err = <-done
	}
	if err != nil && r.interrupted == nil {
		r.progress.Line("compiling the tests: %v", err)
	}
}

// source returns what must be compiled for the invocation.
func (i *invocation) source() components.Source {
	s := components.Source{Name: "tests", Dir: i.dir, Tests: true}
	if isOn(i.flags, "-race") {
		s.Name, s.Flags = "tests with -race", []string{"-race"}
	}
	for _, p := range i.packages {
		s.Packages = append(s.Packages, p.path)
	}
	return s
}

// findRoot returns the root of this repository's main module if the program runs
// in it, and the working directory otherwise.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+module+"\n") {
			return at, nil
		}
	}
	return dir, nil
}
