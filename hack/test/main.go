// SPDX-License-Identifier: Apache-2.0

// Test runs go test, shows its progress, and lists skipped tests with their reasons. The
// last lines are go test's own output, with the failing tests at the very end. It limits
// the time without test events of a package, not the time that tests take.
//
//	go run ./hack/test                       list the parts of the tests
//	go run ./hack/test quick                 run a part
//	go run ./hack/test -run Seed ./e2e       run packages
//	go run ./hack/test -race ./... -- -v     give go test more flags
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nodegate/nodegate/testcluster/command"
	"github.com/nodegate/nodegate/testcluster/components"
	"github.com/nodegate/nodegate/testcluster/progress"
)

// config is the parsed command line.
type config struct {
	silence    time.Duration
	out, skips string
	flags      []string // of go test
	extra      []string // of go test, after the packages
	args       []string // parts or packages
}

func main() {
	signals := make(chan os.Signal, 2)
	notify(signals)
	os.Exit(run(os.Args[1:], os.Stdout, signals))
}

func notify(signals chan<- os.Signal) {
	signal.Notify(signals, append(command.Signals(), syscall.SIGQUIT)...)
}

// run returns the exit status: 1 if tests fail, 2 if the command line is invalid,
// and the shell's status after a signal.
func run(args []string, out *os.File, signals <-chan os.Signal) int {
	c, err := parseArgs(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hack/test:", err)
		return 2
	}
	r := &runner{progress: progress.New(out), out: c.out, silence: c.silence, signals: signals}
	summary := &report{strict: c.skips == "fail", older: os.Getenv(components.VersionVariable)}
	if err := r.runAll(c, out, summary); err != nil {
		fmt.Fprintln(os.Stderr, "hack/test:", err)
		return 2
	}
	summary.interrupted = r.interrupted
	fmt.Fprintln(out)
	ok := summary.write(out)
	if number, is := r.interrupted.(syscall.Signal); is {
		return 128 + int(number)
	}
	if !ok {
		return 1
	}
	return 0
}

// runAll compiles and runs the requested tests.
func (r *runner) runAll(c *config, out io.Writer, summary *report) error {
	ctx := context.Background()
	if len(c.args) == 0 {
		writeParts(os.Stdout, names(parts))
		return errors.New("name parts or packages; see -help")
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	chosen, err := choose(c.args)
	if err != nil {
		return err
	}
	if len(chosen) > 1 {
		writeParts(out, names(chosen))
	}
	invocations, err := r.plan(ctx, root, c, chosen)
	if err != nil {
		return err
	}
	if r.out == "" {
		r.out = filepath.Join(root, "bin", "test")
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("creating the directory for files of events: %w", err)
	}
	var sources []components.Source
	for _, i := range invocations {
		sources = append(sources, i.source())
	}
	for _, p := range chosen {
		for _, s := range p.starts {
			s.Dir = root
			sources = append(sources, s)
		}
	}
	r.compile(ctx, out, sources)
	return r.runEach(invocations, summary)
}

// runEach runs go test for each invocation, until a signal arrives.
func (r *runner) runEach(invocations []*invocation, summary *report) error {
	for _, i := range invocations {
		if r.interrupted != nil {
			break
		}
		r.progress.Line("%s", i)
		if err := r.runTwice(i, summary); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) plan(ctx context.Context, root string, c *config, chosen []part) ([]*invocation, error) {
	if chosen == nil {
		packages, err := list(ctx, ".", c.args)
		return []*invocation{{name: "packages", module: ".", dir: ".", flags: c.flags, extra: c.extra, packages: packages, short: isOn(c.flags, "-short")}}, err
	}
	invocations, err := plan(ctx, root, chosen, c.flags)
	for _, i := range invocations {
		i.extra = c.extra
	}
	return invocations, err
}

// choose returns the named parts, or nil if the arguments are packages.
func choose(args []string) ([]part, error) {
	var chosen []part
	if slices.Contains(args, "all") {
		args = all
	}
	for _, name := range args {
		p, ok := findPart(name)
		switch {
		case ok:
			chosen = append(chosen, p)
		case len(chosen) > 0 || !strings.ContainsAny(name, "./"):
			return nil, fmt.Errorf("there is no part %q; name parts (%s), or packages as ./internal/gate", name, strings.Join(names(parts), ", "))
		}
	}
	if len(chosen) > 0 && len(chosen) < len(args) {
		return nil, errors.New("name parts or packages, not both")
	}
	return chosen, nil
}

func names(list []part) (names []string) {
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

// isOn reports whether a flag is set; the last one counts.
func isOn(flags []string, name string) (on bool) {
	for _, flag := range flags {
		if given, value, _ := strings.Cut(flag, "="); given == name {
			on = value != "false"
		}
	}
	return on
}

// parseArgs parses the command line. Flags of go test are passed to it.
func parseArgs(args []string) (*config, error) {
	c := &config{}
	set := flag.NewFlagSet("hack/test", flag.ContinueOnError)
	set.Usage = func() { usage(set) }
	set.DurationVar(&c.silence, "silence", 10*time.Minute, "the time without test events after which the tests of a package are ended")
	set.StringVar(&c.out, "out", "", "the directory for the complete output, as events of go test -json (default bin/test)")
	set.StringVar(&c.skips, "skips", os.Getenv("NODEGATE_SKIPS"), "'fail' makes skipped tests failures (default $NODEGATE_SKIPS)")
	pass := func(name string) func(string) error {
		return func(value string) error {
			c.flags = append(c.flags, "-"+name+"="+value)
			return nil
		}
	}
	for name, what := range map[string]string{"race": "detect data races", "short": "skip tests that need a control plane"} {
		set.BoolFunc(name, what, pass(name))
	}
	for name, what := range map[string]string{
		"run": "run only tests that match", "skip": "do not run tests that match",
		"count": "run tests several times; 1 runs them although their results are cached", "p": "how many packages run at once",
		"vet": "which checks of go vet run before the tests, or 'off'",
	} {
		set.Func(name, what, pass(name))
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args, c.extra = args[:i], args[i+1:]
	}
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if c.silence <= 0 {
		return nil, errors.New("-silence must be positive")
	}
	if c.skips != "" && c.skips != "fail" {
		return nil, fmt.Errorf("-skips (or NODEGATE_SKIPS) must be 'fail' or empty, not %q", c.skips)
	}
	c.args = set.Args()
	return c, nil
}

func usage(set *flag.FlagSet) {
	w := set.Output()
	fmt.Fprint(w, "usage: go run ./hack/test [flags] part... | package... [-- flags of go test]\n\n")
	writeParts(w, names(parts))
	fmt.Fprintln(w, "  all: what 'make test' runs")
	fmt.Fprintln(w)
	set.PrintDefaults()
}
