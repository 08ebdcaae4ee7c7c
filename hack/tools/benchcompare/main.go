// SPDX-License-Identifier: Apache-2.0

// Benchcompare runs the benchmarks of what nodegate does for each event, and compares
// their allocations with a baseline. Unlike times, allocations hardly differ between
// machines, however busy, so that an increase is detected reliably.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
)

// guarded matches the guarded benchmarks: decoding what the API server sends (Receive),
// storing an event (Observe), collecting the facts about a node (Gather), deciding
// (Decide), composing a patch (Patch), all that the controller does around these when a node
// opens (Opening), and answering the API server while it creates a Node (Handler).
const guarded = "^Benchmark(Receive|Observe|Gather|Decide|Patch|Opening|Handler)$"

// packages are the packages of the guarded benchmarks.
var packages = []string{
	"./internal/controller", "./internal/gate", "./internal/kube/feed", "./internal/kube/write", "./internal/signal", "./internal/webhook",
}

// processes is the number of processes per package. Code that uses hashes costs a
// little more in a process with an unfavorable seed, so the minimum is the cost of
// the code.
const processes = 4

// operations is the number of operations per benchmark. It is large enough that
// one-time allocations, such as pools, round to zero.
const operations = "1000x"

func main() {
	source := flag.String("source", ".", "the directory of nodegate's module")
	baseline := flag.String("baseline", "bench/allocations.txt", "the `file` of the baseline")
	write := flag.Bool("write", false, "write the baseline instead of comparing with it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := run(ctx, *source, *baseline, *write)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchcompare:", err)
		os.Exit(2)
	case failed > 0:
		os.Exit(1)
	}
}

// run returns the number of benchmarks that fail the comparison.
func run(ctx context.Context, source, baseline string, write bool) (failed int, err error) {
	now := costs{}
	for range processes {
		if err := measure(ctx, source, now); err != nil {
			return 0, err
		}
	}
	if write {
		return 0, os.WriteFile(baseline, now.text(), 0o644)
	}
	text, err := os.ReadFile(baseline)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("reading the baseline: %w", err)
	}
	before := costs{}
	if err := before.add(bytes.NewReader(text), baseline); err != nil {
		return 0, err
	}
	return report(os.Stdout, before, now), nil
}

// measure runs the benchmarks, on one processor and without garbage collection,
// which empties pools at any moment.
func measure(ctx context.Context, source string, least costs) error {
	arguments := []string{
		"test", "-exec", "env GOGC=off", "-cpu", "1",
		"-run", "^$", "-bench", guarded, "-benchmem", "-benchtime", operations,
	}
	command := exec.CommandContext(ctx, "go", append(arguments, packages...)...)
	command.Dir, command.Stderr = source, os.Stderr
	out, err := command.Output()
	if err != nil {
		os.Stderr.Write(out)
		return fmt.Errorf("running benchmarks: %w", err)
	}
	return least.add(bytes.NewReader(out), "go test")
}
