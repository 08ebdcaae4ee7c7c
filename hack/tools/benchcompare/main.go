// SPDX-License-Identifier: Apache-2.0

// Benchcompare runs the benchmarks of what nodegate does for each event, and
// compares what they allocate with a baseline. Allocations hardly differ between
// machines, however busy, so that an increase is detected reliably, unlike with
// times.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

// guarded are the benchmarks whose allocations are watched: decoding what the API
// server sends (Receive), taking an event in (Observe), collecting what is known
// of a node (Gather), deciding (Decide) and composing what is written (Patch).
const guarded = "^Benchmark(Receive|Observe|Gather|Decide|Patch)$"

// packages are the packages of the guarded benchmarks.
var packages = []string{"./internal/gate", "./internal/kube/feed", "./internal/kube/write", "./internal/signal"}

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

// run returns how many benchmarks fail the comparison.
func run(ctx context.Context, source, baseline string, write bool) (failed int, err error) {
	now, err := measureLeast(ctx, source)
	if err != nil {
		return 0, err
	}
	if write {
		file, err := os.Create(baseline)
		if err != nil {
			return 0, fmt.Errorf("writing the baseline: %w", err)
		}
		defer file.Close()
		return 0, now.write(file)
	}
	before, err := readBaseline(baseline)
	if err != nil {
		return 0, err
	}
	return tell(os.Stdout, compare(before, now)), nil
}

// measureLeast returns the least that each benchmark cost in any process.
func measureLeast(ctx context.Context, source string) (costs, error) {
	least := costs{}
	for range processes {
		now, err := measure(ctx, source)
		if err != nil {
			return nil, err
		}
		least.atMost(now)
	}
	return least, nil
}

// measure runs the benchmarks, on one processor and without garbage collection,
// which empties pools at any moment.
func measure(ctx context.Context, source string) (costs, error) {
	arguments := []string{
		"test", "-exec", "env GOGC=off", "-cpu", "1",
		"-run", "^$", "-bench", guarded, "-benchmem", "-benchtime", operations,
	}
	command := exec.CommandContext(ctx, "go", append(arguments, packages...)...)
	command.Dir, command.Stderr = source, os.Stderr
	out, err := command.Output()
	if err != nil {
		os.Stderr.Write(out)
		return nil, fmt.Errorf("running benchmarks: %w", err)
	}
	return parse(bytes.NewReader(out), "go test")
}
