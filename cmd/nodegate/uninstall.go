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
		Short: "Take nodegate out of a cluster: no taint, record, policy or gate is left",
		Long: "Take nodegate out of a cluster, however it was installed: closing at birth, gates, taints and records, controller,\n" +
			"policies, rights, CRD and, if nothing else is in it, its namespace, in this order. It takes the rights of a cluster\n" +
			"administrator. What is gone already is passed over: it may be interrupted, and run again.\n\n" +
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
			signal.Ignore(syscall.SIGPIPE) // who does not read on to the end, as head, does not end it half-way
			return uninstall.Run(cmd.Context(), config, o)
		},
	}
	flags := command.Flags()
	at.add(flags)
	flags.StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "the ServiceAccount that nodegate runs as")
	dryRunFlag(flags, &dryRun)
	return command
}
