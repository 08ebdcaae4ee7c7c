// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/uninstall"
)

func newUninstall(c *connection) *cobra.Command {
	var dry dryRun
	o := uninstall.Options{ServiceAccount: "nodegate"}
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Take nodegate out of the cluster: no taint, record, policy or gate is left",
		Long: "Take nodegate out of the cluster, however it was installed: closing at birth, gates, taints and records, controller,\n" +
			"policies, rights, CRD and, if nothing else is in it, its namespace, in this order. It takes the rights of a cluster\n" +
			"administrator. It does not ask back: see --dry-run. What is gone already is passed over: it may be interrupted, and\n" +
			"run again. What Helm has installed, have 'helm uninstall' remove before: afterwards it fails.\n\n" +
			"Save your gates first: kubectl get nodegates -o yaml. nodegate is looked for in the namespace of -n, or else in\n" +
			v1alpha1.DefaultNamespace + ".\n\n" +
			"The exit status is 0 if nothing is left, 1 if a node could not be released, and 2 if it was interrupted or is\n" +
			"refused.",
		Example: "  kubectl gate uninstall --dry-run=client\n  kubectl gate uninstall",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return takesNone(cmd, args)
			}
			return dry.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			// Who does not read on to the end, as head, does not end it half-way.
			signal.Ignore(syscall.SIGPIPE)
			o.Namespace, o.DryRun, o.Out, o.Progress = c.installedIn(), dry.kind(), c.streams.Out, release.Progress(c.streams.ErrOut)
			switch err := uninstall.Run(cmd.Context(), config, o); {
			case errors.Is(err, uninstall.ErrIncomplete):
				return errNo
			case err != nil:
				return unanswered(err)
			}
			return nil
		},
	}
	command.Flags().StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "the ServiceAccount that nodegate runs as")
	dry.addFlags(command.Flags())
	return command
}
