// SPDX-License-Identifier: Apache-2.0

// Command bench measures nodegate against the least that its work can cost: a
// bare loop that watches the same pods and sends one precomputed PATCH for each
// change, with the same rights, client settings and concurrency, on the same API
// server, in turns (A B B A) within one run. What comes out are ratios, with
// their spread and the machine's load, because absolute figures belong to one
// machine and one moment.
//
// nodegate, the limit and the observer are processes of their own. The observer
// has a watch that nobody else uses; it alone says when a taint came or went.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nodegate/nodegate/internal/testbed"
)

// options are what the command line says.
type options struct {
	nodes  int
	rate   int
	rounds int
	out    string
}

// The programs that bench starts are bench itself, called by one of these.
const (
	limitProgram    = "limit"
	observerProgram = "observer"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	err := dispatch(ctx, args)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		return 130
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	return 1
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 2 {
		switch args[0] {
		case limitProgram:
			return runLimit(ctx, args[1])
		case observerProgram:
			return runObserver(ctx, args[1], os.Stdout)
		}
	}
	o, err := parse(args, os.Stdout)
	if err != nil {
		return err
	}
	return measure(ctx, o)
}

// parse reads the command line. Asked for help, it writes it and returns
// flag.ErrHelp.
func parse(args []string, help io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", 200, "how many nodes the fleet has")
	flags.IntVar(&o.rate, "rate", 40, "on how many nodes per second a daemon changes")
	flags.IntVar(&o.rounds, "rounds", 5, "how many rounds of nodegate, limit, limit, nodegate")
	flags.StringVar(&o.out, "out", "", "the directory for RESULTS.md and results.json; nothing is written without it")
	switch err := testbed.ParseFlags(flags, args, help); {
	case err != nil:
		return nil, err
	case o.nodes < 1 || o.rate < 1 || o.rounds < 1:
		return nil, errors.New("--nodes, --rate and --rounds must be at least 1")
	}
	return &o, nil
}
