// SPDX-License-Identifier: Apache-2.0

// Command bench compares nodegate with the limit, which is the minimum cost of its work:
// a bare loop that watches the same objects and sends one precomputed PATCH for each change.
// Both take turns (A B B A) on the same API server, with the same permissions, client
// settings and concurrency. The main results are ratios within pairs of turns, because
// absolute values depend on the machine and its current load. Rounds in which the machine
// does something else are rejected and repeated.
//
// nodegate, the limit and the observer are separate processes. Times of openings are measured
// by the observer, with its own watches. The notes of each figure describe what differs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/bench/figure"
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/peer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster/command"
)

// options are the parsed command line.
type options struct {
	quick  bool
	scale  bool
	only   string
	rounds int
	out    string
	peers  string
}

func main() {
	command.Main("bench", dispatch)
}

// dispatch runs the benchmark, or one of the child processes that it starts, which execute
// the same program.
func dispatch(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == limit.Program:
		return limit.Run(ctx, args[1], limit.Direction(args[2]))
	case len(args) == 4 && args[0] == observer.Program:
		return observer.Run(ctx, args[1], corev1.Taint{Key: args[2], Effect: corev1.TaintEffect(args[3])}, os.Stdout)
	}
	o, err := parse(args, os.Stdout)
	if err != nil {
		return err
	}
	if !o.quick {
		// nodegate is built as for releases: its memory would include the C library's pages.
		if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
			return fmt.Errorf("choosing how to build nodegate: %w", err)
		}
	}
	if o.peers != "" {
		return measurePeers(ctx, o)
	}
	figures, err := choose(o.set(), o.only)
	if err != nil {
		return err
	}
	return measure(ctx, o, figures)
}

// parse parses the command line. If help is requested, it prints the help and returns
// flag.ErrHelp.
func parse(args []string, help io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "measure few rounds and small fleets, to check that everything works")
	flags.BoolVar(&o.scale, "scale", false, "measure the figures about the largest fleets instead")
	flags.StringVar(&o.only, "only", "", "figures to measure, such as P1,P5; default: all")
	flags.IntVar(&o.rounds, "rounds", 0, "number of rounds; default: 5, or 1 with -quick")
	flags.StringVar(&o.out, "out", "", "directory for RESULTS.md and results.json; default: none is written")
	flags.StringVar(&o.peers, "peers", "", "files of other programs, such as a.yaml,b.yaml, that are measured instead, once each, after nodegate")
	if err := command.ParseFlags(flags, args, help); err != nil {
		return nil, err
	}
	if o.rounds < 0 {
		return nil, errors.New("--rounds must be at least 1")
	}
	if o.out != "" {
		if info, err := os.Stat(o.out); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--out must be an existing directory, which %s is not", o.out)
		}
	}
	return &o, nil
}

// choose returns those figures of all that a list such as "P1,P5" names, in the order of
// measurement.
func choose(all []figure.Figure, only string) ([]figure.Figure, error) {
	if only == "" {
		return all, nil
	}
	var chosen []figure.Figure
	wanted := strings.Split(only, ",")
	for _, f := range all {
		if i := slices.Index(wanted, f.ID); i >= 0 {
			chosen, wanted = append(chosen, f), slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("no such figure: %s", strings.Join(wanted, ", "))
	}
	return chosen, nil
}

func (o *options) sizes() figure.Sizes {
	sizes := figure.Full
	if o.quick {
		sizes = figure.Quick
	}
	if o.rounds > 0 {
		sizes.Rounds = o.rounds
	}
	return sizes
}

// command returns the command line that repeats the measurement.
func (o *options) command() string {
	command := "go run ./bench"
	if o.quick {
		command += " -quick"
	}
	if o.scale {
		command += " -scale"
	}
	if o.rounds > 0 {
		command += fmt.Sprintf(" -rounds %d", o.rounds)
	}
	if o.only != "" {
		command += " -only " + o.only
	}
	return command
}

// measure measures figures, and stops everything that it has started.
func measure(ctx context.Context, o *options, figures []figure.Figure) (err error) {
	began := time.Now()
	r := report.Report{
		Command: o.command(), Quick: o.quick, Date: began.UTC().Format(time.DateOnly),
		Machine: meter.Machine(), LoadBefore: meter.Load(),
	}
	env, err := figure.New(ctx, o.sizes(), os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	for _, f := range figures {
		result, err := measureOne(ctx, env, f)
		if err != nil {
			env.Cluster.Keep()
			r.Table(os.Stdout) // the results so far
			return fmt.Errorf("measuring %s: %w; logs are in %s", f.ID, err, env.Cluster.Dir())
		}
		r.Results = append(r.Results, result)
	}
	if r.Versions, err = meter.Versions(ctx, env.Cluster); err != nil {
		return err
	}
	r.Cuts = env.Cuts()
	r.LoadAfter, r.Took = meter.Load(), time.Since(began).Round(time.Second).String()
	r.Table(os.Stdout)
	env.Say("took %s: %s", r.Took, r.Times())
	if o.out == "" {
		return nil
	}
	return r.Write(o.out)
}

// measurePeers measures nodegate and the peers, and prints a table.
func measurePeers(ctx context.Context, o *options) (err error) {
	var peers []*peer.Peer
	for file := range strings.SplitSeq(o.peers, ",") {
		p, err := peer.Load(file)
		if err != nil {
			return err
		}
		peers = append(peers, p)
	}
	env, err := figure.New(ctx, o.sizes(), os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	subjects, err := peer.Measure(ctx, env, peers)
	report.Peers(os.Stdout, subjects)
	if err != nil {
		env.Cluster.Keep()
		return fmt.Errorf("%w; logs are in %s", err, env.Cluster.Dir())
	}
	return nil
}

// measureOne measures a figure.
func measureOne(ctx context.Context, env *figure.Env, f figure.Figure) (report.Result, error) {
	env.Say("%s: %s", f.ID, f.Title)
	began := time.Now()
	result, err := f.Measure(ctx, env)
	result.Rounds = env.TakeRounds()
	if err != nil {
		return result, err
	}
	result.ID, result.Title = f.ID, f.Title
	result.Took = time.Since(began).Round(time.Second).String()
	return result, nil
}
