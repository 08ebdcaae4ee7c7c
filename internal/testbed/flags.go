// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

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
