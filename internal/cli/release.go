// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/release"
)

func newRelease(c *connection) *cobra.Command {
	var (
		o    output
		dry  dryRun
		all  bool
		what release.Options
	)
	command := &cobra.Command{
		Use:   "release NODE... | --all | --gate GATE",
		Short: "Take what gates have put there off nodes: taints, records and overrides",
		Long: "Take what gates have put there off nodes: the taints that their records tell of, the records and the overrides.\n" +
			"Nothing else is touched, nor a taint that the record of another gate tells of too. For gates that are gone and\n" +
			"whose controller is gone too: it rests on what stands on the nodes, and works where the controller, the CRD and\n" +
			"the policies do not exist any more. 'kubectl gate uninstall' does all that and this.\n\n" +
			"It takes your own rights: get, list and patch of nodes and, where nodegate's policies are still there, override\n" +
			"of nodegates.nodegate.dev. It does not ask back: see --dry-run. It may be interrupted, and run again.\n\n" +
			"While nodegate runs (its Lease is looked for in the namespace of -n, or else in " + v1alpha1.DefaultNamespace + "), gates that\n" +
			"exist are not released without --force. Delete them, which opens what they hold; or, on a few nodes for a time,\n" +
			"override them.\n\n" +
			"The exit status is 0 if nothing is left of what was to go, 1 if something is, and 2 if nothing was begun or it was\n" +
			"interrupted.",
		Example: "  kubectl gate release --all --dry-run=client\n  kubectl gate release ip-10-0-3-17\n  kubectl gate release --gate cilium",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return errors.New("name nodes or give --all, not both")
			case !all && len(args)+len(what.Gates) == 0:
				return errors.New("name nodes, or give --gate or --all")
			}
			return errors.Join(o.check(), dry.check())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			if what.Nodes, err = nodesOf(args); err != nil {
				return err
			}
			what.Namespace = c.installedIn()
			what.DryRun, what.Progress = dry.kind(), release.Progress(c.streams.ErrOut)
			report, err := release.Run(cmd.Context(), config, what)
			if report != nil {
				text := report.Text
				if o.format == formatName {
					text = report.Names
				}
				if printing := o.print(c.streams.Out, report, text); printing != nil {
					return printing
				}
			}
			return released(cmd.Context(), config, report, err)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&all, "all", false, "release all nodes")
	flags.StringSliceVar(&what.Gates, "gate", nil, "release from these gates only, separated by commas; of all nodes, if none is named")
	flags.BoolVar(&what.Force, "force", false, "release also from gates that exist while nodegate runs")
	o.addFlags(flags, formatName)
	dry.addFlags(flags)
	return command
}

// released says how a release ended.
func released(ctx context.Context, config *rest.Config, report *release.Report, err error) error {
	var missing *release.NoSuchNodeError
	switch {
	case errors.As(err, &missing):
		reader, readerErr := cluster.NewReader(config)
		if readerErr != nil {
			return err
		}
		return noSuchNode(ctx, reader, missing.Node)
	case err != nil && report == nil:
		return unanswered(err)
	case err != nil:
		return err
	case !report.Complete():
		return errNo
	}
	return nil
}

// kind is the dry run as package release has it.
func (d *dryRun) kind() release.DryRun {
	if d.mode == dryRunNone {
		return release.DryRunNone
	}
	return release.DryRun(d.mode)
}
