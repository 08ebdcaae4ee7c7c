// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
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
		Short: "Remove nodegate from the cluster, including all taints, records, policies and gates",
		Long: "Remove nodegate from the cluster, regardless of how it was installed. The command removes in this order: closing at\n" +
			"creation, gates, taints and records, controller, permissions, policies, CRD and, if it is empty then, the namespace. It\n" +
			"requires the permissions of a cluster administrator. It does not ask for confirmation: see --dry-run. It skips what\n" +
			"no longer exists: it can be interrupted and run again. If nodegate was installed with Helm, run 'helm uninstall'\n" +
			"first, because it fails after this command.\n\n" +
			"Save your gates first: kubectl get nodegates -o yaml. nodegate is looked up in the namespace of -n, default\n" +
			v1alpha1.DefaultNamespace + ".\n\n" +
			"The exit status is 0 if nothing is left, 1 if a node could not be cleaned up, and 2 if the command was interrupted or\n" +
			"rejected.",
		Example: "  kubectl gate uninstall --dry-run=client\n  kubectl gate uninstall",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return rejectArguments(cmd, args)
			}
			return dry.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			// A reader that exits early, such as head, must not end the command half-way.
			signal.Ignore(syscall.SIGPIPE)
			o.Namespace, o.DryRun, o.Out, o.Progress = c.installNamespace(), dry.kind(), c.streams.Out, release.Progress(unwatched(c.streams.ErrOut))
			switch err := uninstall.Run(cmd.Context(), config, o); {
			case errors.Is(err, uninstall.ErrIncomplete):
				fmt.Fprintln(c.streams.ErrOut, "error:", err) // Execute prints no error with this exit status
				return errNo
			case err != nil:
				return describeRequestError(err)
			}
			return nil
		},
	}
	command.Flags().StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "name of nodegate's ServiceAccount")
	dry.addFlags(command.Flags())
	return command
}
