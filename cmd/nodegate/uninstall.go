// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/uninstall"
)

func newUninstallCommand() *cobra.Command {
	var (
		at     connectionFlags
		o      = uninstall.Options{ServiceAccount: defaultServiceAccount}
		dryRun string
	)
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove nodegate from a cluster, including all taints, records, policies and gates",
		Long: "Remove nodegate from a cluster, regardless of how it was installed. The command removes in this order: closing at\n" +
			"creation, gates, taints and records, controller, permissions, policies, CRD and, if it is empty then, the namespace. It\n" +
			"requires the permissions of a cluster administrator. It skips what no longer exists: it can be interrupted and run\n" +
			"again.\n\n" +
			"Save your gates first: kubectl get nodegates -o yaml.",
		Example: "  nodegate uninstall --kubeconfig admin.kubeconfig --dry-run=client",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.DryRun, err = release.ParseDryRun(dryRun); err != nil {
				return err
			}
			config, err := restConfig(at.kubeconfig)
			if err != nil {
				return err
			}
			o.Namespace, o.Out, o.Progress = at.namespace, cmd.OutOrStdout(), release.Progress(cmd.ErrOrStderr())
			signal.Ignore(syscall.SIGPIPE) // a reader that exits early, such as head, must not end the command half-way
			return uninstall.Run(cmd.Context(), config, o)
		},
	}
	flags := command.Flags()
	at.add(flags)
	flags.StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "name of nodegate's ServiceAccount")
	dryRunFlag(flags, &dryRun)
	return command
}
