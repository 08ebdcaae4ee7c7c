// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newReset(c *connection) *cobra.Command {
	var f overrideFlags
	command := &cobra.Command{
		Use:   "reset (NODE... | -l SELECTOR) --gate GATE",
		Short: "Remove the manual override of a gate from nodes",
		Long: "Remove the manual override of a gate from nodes before it ends by itself: the gate follows its signals again. Nodes\n" +
			"without an override are not changed.\n\n" + changeHelp,
		Example:           "  kubectl gate reset ip-10-0-3-17 --gate cilium\n  kubectl gate reset -l pool=gpu --gate driver --dry-run=server",
		ValidArgsFunction: c.nodeNames,
		Args:              func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), c, args) },
	}
	f.addFlags(command.Flags())
	return command
}
