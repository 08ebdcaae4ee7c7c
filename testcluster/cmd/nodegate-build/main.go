// SPDX-License-Identifier: Apache-2.0

// Command nodegate-build compiles the programs of the control plane, and packages
// of the module in the working directory, and shows the progress. Run it before
// anything with a time limit. It depends only on Go's standard library, so that
// it starts within seconds on a fresh machine.
//
//	go run ./testcluster/cmd/nodegate-build [flags] [packages]
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

	"github.com/nodegate/nodegate/testcluster/command"
	"github.com/nodegate/nodegate/testcluster/components"
)

func main() {
	command.Main("nodegate-build", func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout, os.Stderr)
	})
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	options, err := parse(args, stdout)
	if err != nil {
		return err
	}
	options.Progress = stderr
	_, err = components.Build(ctx, *options)
	return err
}

// parse parses the command line. If help is requested, it prints the help and
// returns flag.ErrHelp.
func parse(args []string, help io.Writer) (*components.Options, error) {
	options := &components.Options{Components: components.ControlPlane()}
	var source components.Source
	flags := flag.NewFlagSet("nodegate-build", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed once, by main
	flags.StringVar(&options.KubernetesVersion, "kubernetes-version", "",
		"one of "+strings.Join(components.Versions(), ", ")+" (default $NODEGATE_KUBERNETES_VERSION, or else the newest)")
	flags.Func("components", "programs to build, such as etcd,kubelet, or none (default those of the control plane)",
		func(value string) error {
			options.Components = named(value)
			return nil
		})
	flags.StringVar(&source.Output, "o", "", "where to write the programs in the packages (default nowhere)")
	race := flags.Bool("race", false, "compile the packages with the race detector")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(help, "Usage: nodegate-build [flags] [packages]\n\n"+
			"Builds programs of the control plane, and compiles the packages.\n\n")
		flags.SetOutput(help)
		flags.PrintDefaults()
	}
	if err != nil {
		return nil, err
	}
	if *race {
		source.Flags = []string{"-race"}
	}
	if source.Packages = flags.Args(); len(source.Packages) > 0 {
		source.Name = strings.Join(source.Packages, " ")
		options.Sources = []components.Source{source}
	}
	return options, nil
}

// named returns the components of a list.
func named(list string) []components.Component {
	var named []components.Component
	for name := range strings.SplitSeq(list, ",") {
		named = append(named, components.Component(name))
	}
	return slices.DeleteFunc(named, func(c components.Component) bool { return c == "" || c == "none" })
}
