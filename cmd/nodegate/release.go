// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/release"
)

// connectionFlags are the flags that select the API server and nodegate's namespace.
type connectionFlags struct{ kubeconfig, namespace string }

func (f *connectionFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig file (default the pod's ServiceAccount)")
	flags.StringVar(&f.namespace, "namespace", defaultNamespace, "namespace in which nodegate is installed")
}

// dryRunFlag adds the flag --dry-run, as in kubectl.
func dryRunFlag(flags *pflag.FlagSet, mode *string) {
	flags.StringVar(mode, "dry-run", "none", release.DryRunUsage)
}

var errIncomplete = errors.New("some nodes could not be released: fix the errors above, and run the command again")

func newReleaseCommand() *cobra.Command {
	var (
		at     connectionFlags
		o      release.Options
		all    bool
		dryRun string
	)
	command := &cobra.Command{
		Use:   "release --all | NODE...",
		Short: "Remove the taints, records and overrides of gates from nodes",
		Long: "Remove from nodes the taints that gates' records contain, the records themselves and the overrides. Nothing else is\n" +
			"changed. The command depends on the nodes only: it needs no controller, CRD or kubectl. Required permissions: get,\n" +
			"list and patch nodes; patch nodes/status, if gates have published conditions; while nodegate's policies are\n" +
			"installed, override nodegates.nodegate.dev; list nodegates.nodegate.dev and get the Lease nodegate, unless --force is\n" +
			"used, and, if this Lease does not exist, get the ClusterRoleBinding nodegate.\n\n" +
			"While nodegate is running, the command rejects gates that exist, because they would close again: delete the gates\n" +
			"instead. It also refuses if nodegate is installed in another namespace than that of --namespace. It cannot detect a\n" +
			"controller with --leader-elect=false, which has no Lease: stop it first. The command can be interrupted and run again.\n" +
			"'kubectl gate release' is the same with all flags of kubectl.",
		Example: "  nodegate release --all --kubeconfig admin.kubeconfig --dry-run=client\n  nodegate release --all --gate cilium",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 == all {
				return errors.New("specify either node names or --all")
			}
			if err := release.CheckGates(cmd.Flags().Changed("gate"), o.Gates); err != nil {
				return err
			}
			if o.DryRun, err = release.ParseDryRun(dryRun); err != nil {
				return err
			}
			config, err := restConfig(at.kubeconfig)
			if err != nil {
				return err
			}
			o.Nodes, o.Namespace, o.Progress = args, at.namespace, release.Progress(cmd.ErrOrStderr())
			o.Waiting = func(reason string) { fmt.Fprintln(cmd.ErrOrStderr(), reason) }
			report, err := release.Run(cmd.Context(), config, o)
			printRelease(cmd, report)
			if err == nil && !report.Complete() {
				err = errIncomplete
			}
			return err
		},
	}
	flags := command.Flags()
	at.add(flags)
	flags.BoolVar(&all, "all", false, "release all nodes")
	flags.StringSliceVar(&o.Gates, "gate", nil, "comma-separated names of the only gates to release (default all gates)")
	flags.BoolVar(&o.Force, "force", false, "also release gates that exist while nodegate is running or may be running")
	dryRunFlag(flags, &dryRun)
	return command
}

// printRelease prints the report of a release, after warnings about unknown gates. It prints
// nothing if the release did not start.
func printRelease(cmd *cobra.Command, report *release.Report) {
	if report == nil {
		return
	}
	for _, unknown := range report.Unknown {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", unknown.Warning(""))
	}
	fmt.Fprint(cmd.OutOrStdout(), report.Text())
}
