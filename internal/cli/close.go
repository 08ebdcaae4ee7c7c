// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func newClose(c *connection) *cobra.Command {
	f := overrideFlags{state: v1alpha1.StateClosed}
	command := &cobra.Command{
		Use:   "close (NODE... | -l SELECTOR) --gate GATE --for DURATION --reason TEXT",
		Short: "Keep a gate closed on nodes for a limited time",
		Long: "Keep a gate closed on nodes for a limited time, regardless of its signals. The taint of a NoExecute gate evicts pods.\n" +
			"When the time ends, or with 'reset', the gate follows its signals again. The command writes an override\n" +
			"(docs/guides/overrides.md) that applies to this Node only, not to a later Node of the same name. It replaces an\n" +
			"existing override.\n\n" + changeHelp,
		Example:           "  kubectl gate close ip-10-0-3-17 --gate disk --for 4h --reason 'ticket 4711: disk is replaced'",
		ValidArgsFunction: c.nodeNames,
		Args: func(_ *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return f.checkOverride()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), c, args) },
	}
	f.addFlags(command.Flags())
	f.addOverrideFlags(command.Flags())
	return command
}
