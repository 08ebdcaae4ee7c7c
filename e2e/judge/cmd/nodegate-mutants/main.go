// SPDX-License-Identifier: Apache-2.0

// Command nodegate-mutants runs nodegate with one safeguard broken at a time, and
// fails unless the judge detects each. The arguments are names of mutants; without
// arguments, it runs all of them.
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
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/e2e/judge/mutants"
	"github.com/nodegate/nodegate/e2e/judge/scenario"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/command"
)

var verbose = flag.Bool("v", false, "print the complete verdict for each mutant")

func main() {
	ctrl.SetLogger(logr.Discard())
	command.Main("nodegate-mutants", func(ctx context.Context, _ []string) error {
		flag.Parse()
		return run(ctx, flag.Args())
	})
}

func run(ctx context.Context, names []string) (err error) {
	list, err := mutants.Find(names...)
	if err != nil {
		return err
	}
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(module)))
	options := scenario.ClusterOptions(os.Stderr)
	if _, err := testcluster.Build(ctx, options); err != nil {
		return err
	}
	c, err := testcluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	begun := time.Now()
	if err := runWhole(ctx, c); err != nil {
		return err
	}
	caught := 0
	err = mutants.Run(ctx, c, root, list, func(o mutants.Outcome) {
		fmt.Println(o)
		if o.Caught != nil {
			caught++
		}
		if *verbose && o.Result != nil {
			_, _ = o.Result.WriteTo(os.Stdout)
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d of %d mutants caught in %s\n", caught, len(list), time.Since(begun).Round(time.Second))
	if caught < len(list) {
		return errors.New("some mutants were not caught")
	}
	return nil
}

// runWhole performs the scenario with the unmodified nodegate, which must pass.
// Otherwise, a caught mutant would prove nothing.
func runWhole(ctx context.Context, c *testcluster.Cluster) error {
	dir, err := os.MkdirTemp("", "nodegate-mutants-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	program, err := testbed.BuildProgram(ctx, dir)
	if err != nil {
		return err
	}
	result, err := scenario.Run(ctx, scenario.Options{Cluster: c, Program: program, Linger: time.Second})
	if err != nil {
		return err
	}
	if _, err := result.WriteTo(os.Stdout); err != nil {
		return fmt.Errorf("writing the verdict: %w", err)
	}
	if err := errors.Join(result.Stuck...); err != nil || !result.Pass() {
		return errors.Join(errors.New("the unmodified nodegate does not pass"), err)
	}
	return nil
}
