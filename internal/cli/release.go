// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
		Args: func(cmd *cobra.Command, args []string) error {
			empty := len(what.Gates) == 0 || slices.Contains(what.Gates, "")
			switch {
			case empty && cmd.Flags().Changed("gate"):
				return errNoGate
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
			if printing := c.tellRelease(&o, report); printing != nil {
				return printing
			}
			c.warnOfStrangers(cmd.Context(), config, what.Gates, report)
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

// tellRelease prints what became of a release that was begun.
func (c *connection) tellRelease(o *output, report *release.Report) error {
	if report == nil {
		return nil
	}
	text := report.Text
	if o.format == formatName {
		text = report.Names
	}
	return o.print(c.streams.Out, report, text)
}

// errNoGate is said of an empty name, as of a variable of a script that is not set:
// it does not stand for all gates.
var errNoGate = errors.New("--gate names no gate")

// warnOfStrangers warns of gates that were named and that neither exist nor have left
// anything on a node. It is no error: when a release is run again, they may be gone.
func (c *connection) warnOfStrangers(ctx context.Context, config *rest.Config, names []string, report *release.Report) {
	if report == nil {
		return
	}
	found := make(map[string]bool)
	for i := range report.Nodes {
		n := &report.Nodes[i]
		if n.Error != "" {
			return // what is on it is not known
		}
		for _, name := range slices.Concat(n.Gates, n.Kept) {
			found[name] = true
		}
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] })
	if len(names) == 0 {
		return
	}
	reader, err := cluster.NewReader(config)
	if err != nil {
		return
	}
	declared, _, err := declaredGates(ctx, reader)
	if err != nil {
		return // who may not list gates is told as much as is known
	}
	for _, name := range names {
		if err := known([]string{name}, declared); err != nil {
			fmt.Fprintf(c.streams.ErrOut, "warning: nothing of it is on a node: %v\n", err)
		}
	}
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
