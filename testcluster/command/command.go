// SPDX-License-Identifier: Apache-2.0

// Package command contains the common main function of programs that start other
// processes, and the parser of their flags. An interrupt ends them in order.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main calls run with the program's arguments and exits with its result: status 0
// also after flag.ErrHelp, 130 if a signal ended the context and run returned its
// error, and otherwise 1 with the error on stderr. After the first signal, the next
// one ends the process at once.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), Signals()...)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		fmt.Fprintln(os.Stderr, name+": interrupted")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, name+":", err)
	os.Exit(1)
}

// Signals returns the signals that interrupt a program. SIGHUP is not among them if it is
// ignored, as under nohup: to register it would end that.
func Signals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// ParseFlags parses a command line that consists of flags only. If help is
// requested, it prints the help and returns flag.ErrHelp. It prints no other
// error, because the caller does.
func ParseFlags(flags *flag.FlagSet, args []string, help io.Writer) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(help, "Usage of %s:\n", flags.Name())
		flags.SetOutput(help)
		flags.PrintDefaults()
		return err
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}
