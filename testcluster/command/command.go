// SPDX-License-Identifier: Apache-2.0

// Package command contains the common main function of programs that start other
// processes. An interrupt ends them in order.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main calls run with the program's arguments and exits with its result: status 0
// also after flag.ErrHelp, 130 if a signal ended the context and run returned its
// error, and otherwise 1 with the error on stderr. After the first signal, the next
// one ends the process at once.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, name+": interrupted")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, name+":", err)
	os.Exit(1)
}
