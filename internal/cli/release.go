// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/release"
)

const releaseHelp = "Remove from nodes the taints that gates' records contain, the records themselves and the overrides. Nothing else is\n" +
	"changed, and a taint that another gate's record also contains stays. The command is for gates that no longer exist\n" +
	"and whose controller no longer exists either: it depends on the nodes only, and works if the controller, the CRD and\n" +
	"the policies are gone. 'kubectl gate uninstall' removes those, too, and releases all nodes.\n\n" +
	"Required permissions: get, list and patch nodes; patch nodes/status, if gates have published conditions; while\n" +
	"nodegate's policies are installed, override nodegates.nodegate.dev; list nodegates.nodegate.dev and get the Lease\n" +
	"nodegate, unless --force is used, and, if this Lease does not exist, get the ClusterRoleBinding nodegate. The command\n" +
	"does not ask for confirmation: see --dry-run. It can be interrupted and run again.\n\n" +
	"While nodegate is running (its Lease is looked up in the namespace of -n, default " + v1alpha1.DefaultNamespace + "), gates that\n" +
	"exist are not released without --force. Delete these gates, which opens them on all nodes, or override them on some\n" +
	"nodes for a limited time. If nodegate is installed in another namespace, the command refuses, and names that\n" +
	"namespace. It cannot detect a controller with --leader-elect=false, which has no Lease: stop it first.\n\n" +
	"The exit status is 0 if everything requested was removed, 1 if something is left, and 2 if the release did not start\n" +
	"or was interrupted."

func newRelease(c *connection) *cobra.Command {
	var (
		o    output
		dry  dryRun
		all  bool
		what release.Options
	)
	command := &cobra.Command{
		Use:     "release NODE... | --all | --gate GATE",
		Short:   "Remove the taints, records and overrides of gates from nodes",
		Long:    releaseHelp,
		Example: "  kubectl gate release --all --dry-run=client\n  kubectl gate release ip-10-0-3-17\n  kubectl gate release --gate cilium",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := release.CheckGates(cmd.Flags().Changed("gate"), what.Gates); err != nil {
				return err
			}
			switch {
			case all && len(args) > 0:
				return errors.New("specify either node names or --all")
			case !all && len(args)+len(what.Gates) == 0:
				return errors.New("specify node names, --gate or --all")
			}
			return errors.Join(o.check(), dry.check())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			if what.Nodes, err = parseNodeNames(args); err != nil {
				return err
			}
			what.Namespace = c.installNamespace()
			what.DryRun, what.Progress = dry.kind(), release.Progress(unwatched(c.streams.ErrOut))
			what.Waiting = func(reason string) { fmt.Fprintln(c.streams.ErrOut, reason) }
			report, err := release.Run(cmd.Context(), config, what)
			if printing := c.printRelease(cmd.Context(), &o, report); printing != nil {
				return printing
			}
			return released(cmd.Context(), config, report, err)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&all, "all", false, "release all nodes")
	flags.StringSliceVar(&what.Gates, "gate", nil, "comma-separated names of the only gates to release; applies to all nodes if no nodes are named")
	flags.BoolVar(&what.Force, "force", false, "also release gates that exist while nodegate is running or may be running")
	o.addFlags(flags, formatName)
	dry.addFlags(flags)
	return command
}

// printRelease prints the report of a release, after warnings about unknown gates. It prints
// nothing if the release did not start.
func (c *connection) printRelease(ctx context.Context, o *output, report *release.Report) error {
	if report == nil {
		return nil
	}
	for _, unknown := range report.Unknown {
		fmt.Fprintf(c.streams.ErrOut, "warning: %s\n", unknown.Warning(didYouMean(unknown.Name, unknown.Known)))
	}
	text := report.Text
	if o.format == formatName {
		text = report.Names
	}
	return o.print(context.WithoutCancel(ctx), c.streams.Out, report, text)
}

// released converts the result of a release to the error of the verb.
func released(ctx context.Context, config *rest.Config, report *release.Report, err error) error {
	var missing *release.NoSuchNodeError
	switch {
	case errors.As(err, &missing):
		reader, readerErr := read.NewReader(config)
		if readerErr != nil {
			return err
		}
		return noSuchNode(ctx, reader, missing.Node)
	case err != nil && report == nil:
		return describeRequestError(err)
	case err != nil:
		return err
	case !report.Complete():
		return errNo
	}
	return nil
}
