// SPDX-License-Identifier: Apache-2.0

// Command nodegate-torture runs nodegate while faults are injected, and fails unless all
// phases pass. The arguments are IDs of phases; without arguments, it runs all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/e2e/torture"
	"github.com/nodegate/nodegate/e2e/torture/clocks"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/command"
)

var (
	seed    = flag.Uint64("seed", 0, "seed of faults and churn; 0 selects a random one")
	minutes = flag.Float64("minutes", 10, "total `minutes` of fault injection in all phases")
	nodes   = flag.Int("nodes", 48, "number of nodes of the fleet")
	older   = flag.String("older", "", "an earlier `revision` of this repository for R10; without it, R10 is skipped")
	verbose = flag.Bool("v", false, "print the judge's verdict for each phase")
)

func main() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	command.Main("nodegate-torture", func(ctx context.Context, _ []string) error {
		flag.Parse()
		return run(ctx)
	})
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "nodegate-torture-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	o := torture.Options{
		Seed: *seed, Phases: flag.Args(), Nodes: *nodes, Progress: os.Stderr,
		Duration: time.Duration(*minutes * float64(time.Minute)),
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if o.Program, err = testbed.BuildProgram(ctx, dir); err != nil {
		return err
	}
	if clocks.Supported() == nil {
		o.ClockProgram = func(ctx context.Context) (string, error) { return buildClockProgram(ctx, dir) }
	}
	if *older != "" {
		if o.OlderProgram, err = buildRevision(ctx, dir, *older); err != nil {
			return err
		}
	}
	failed := 0
	err = torture.Run(ctx, o, func(r *torture.Report) {
		_, _ = r.WriteTo(os.Stdout)
		if *verbose && r.Verdict != nil {
			_, _ = r.Verdict.WriteTo(os.Stdout)
		}
		if !r.Pass() {
			failed++
		}
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d phases failed", failed)
	}
	if err != nil {
		return errors.Join(err, errors.New("to repeat it: "+makeCommand(&o, *minutes, *older)))
	}
	fmt.Printf("seed %d passed\n", o.Seed)
	return nil
}

// makeCommand returns the command that runs the same phases with the same faults.
func makeCommand(o *torture.Options, minutes float64, older string) string {
	command := fmt.Sprintf("make torture SEED=%d MINUTES=%g", o.Seed, minutes)
	if older != "" {
		command += " OLDER_REVISION=" + older
	}
	if len(o.Phases) > 0 {
		command += fmt.Sprintf(" PHASES=%q", strings.Join(o.Phases, " "))
	}
	return command
}

// buildClockProgram builds nodegate with a clock whose rate can be set, and returns its path.
func buildClockProgram(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "clocks", "nodegate")
	source, err := filepath.Abs("cmd/nodegate")
	if err := errors.Join(err, os.Mkdir(filepath.Dir(program), 0o700)); err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	return program, clocks.Build(ctx, source, program)
}

// buildRevision builds nodegate as it was at a revision of the repository.
func buildRevision(ctx context.Context, dir, revision string) (string, error) {
	sources, program := filepath.Join(dir, "older"), filepath.Join(dir, "nodegate-older")
	if err := os.Mkdir(sources, 0o700); err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	command := exec.CommandContext(ctx, "sh", "-ec", `git archive "$1" | tar -x -C "$2" && cd "$2" && go build -o "$3" ./cmd/nodegate`, "sh", revision, sources, program)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building revision %s: %w:\n%s", revision, err, output)
	}
	return program, nil
}
