// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/release"
)

// connectionFlags are where the API server is, and where nodegate is or was.
type connectionFlags struct{ kubeconfig, namespace string }

func (f *connectionFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig file; default: the pod's own ServiceAccount")
	flags.StringVar(&f.namespace, "namespace", defaultNamespace, "the namespace of nodegate")
}

// dryRunFlag is kubectl's.
func dryRunFlag(flags *pflag.FlagSet, mode *string) {
	flags.StringVar(mode, "dry-run", "none", release.DryRunUsage)
}

var errIncomplete = errors.New("not everything could be taken off the nodes: see above, and run it again")

func newReleaseCommand() *cobra.Command {
	var (
		at     connectionFlags
		o      release.Options
		all    bool
		dryRun string
	)
	command := &cobra.Command{
		Use:   "release --all | NODE...",
		Short: "Take what gates have put there off nodes: taints, records and overrides",
		Long: "Take what gates have put there off nodes: the taints that their records tell of, the records and the overrides.\n" +
			"Nothing else is touched. It needs nothing but the nodes: no controller, no CRD, no kubectl; the right to get, list\n" +
			"and patch nodes and, where nodegate's policies are still there, to 'override' nodegates.nodegate.dev.\n\n" +
			"It is refused for gates that exist while nodegate runs, which would close nodes again: delete the gates then. It may\n" +
			"be interrupted, and run again. 'kubectl gate release' is the same with all flags of kubectl.",
		Example: "  nodegate release --all --kubeconfig admin.kubeconfig --dry-run=client\n  nodegate release --all --gate cilium",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 == all {
				return errors.New("name nodes, or give --all")
			}
			if o.DryRun, err = release.ParseDryRun(dryRun); err != nil {
				return err
			}
			config, err := restConfig(at.kubeconfig)
			if err != nil {
				return err
			}
			o.Nodes, o.Namespace, o.Progress = args, at.namespace, release.Progress(cmd.ErrOrStderr())
			report, err := release.Run(cmd.Context(), config, o)
			if report != nil {
				fmt.Fprint(cmd.OutOrStdout(), report.Text())
			}
			if err == nil && !report.Complete() {
				err = errIncomplete
			}
			return err
		},
	}
	flags := command.Flags()
	at.add(flags)
	flags.BoolVar(&all, "all", false, "release all nodes")
	flags.StringSliceVar(&o.Gates, "gate", nil, "release from these gates only, separated by commas; default: all")
	flags.BoolVar(&o.Force, "force", false, "release also from gates that exist while nodegate runs")
	dryRunFlag(flags, &dryRun)
	return command
}
