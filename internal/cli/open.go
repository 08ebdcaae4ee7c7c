// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func newOpen(c *connection) *cobra.Command {
	f := overrideFlags{state: v1alpha1.StateOpen}
	command := &cobra.Command{
		Use:   "open (NODE... | -l SELECTOR) --gate GATE [--for DURATION --reason TEXT]",
		Short: "Open a gate on nodes for a limited time, or open a gate that must be opened manually",
		Long: "Open a gate on nodes for a limited time, regardless of its signals. When the time ends, or with 'reset', the gate\n" +
			"follows its signals again. The command writes an override (docs/guides/overrides.md) that applies to this Node\n" +
			"only, not to a later Node of the same name. It replaces an existing override.\n\n" +
			"A gate with 'reopen: Manual' opens when a user removes its taint. Without --for, the command removes the taint, and\n" +
			"the gate stays open until its signals hold again after an interruption. With --for, the gate is overridden like any\n" +
			"other gate, and is closed again afterwards.\n\n" + changeHelp,
		Example: "  kubectl gate open ip-10-0-3-17 --gate cilium --for 1h --reason 'ticket 4711: test under load'\n" +
			"  kubectl gate open ip-10-0-3-17 --gate repair   # reopen: Manual",
		ValidArgsFunction: c.nodeNames,
		Args: func(_ *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			if f.duration == 0 && f.reason == "" {
				return nil // for a gate with reopen Manual
			}
			return f.checkOverride()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), c, args) },
	}
	f.addFlags(command.Flags())
	f.addOverrideFlags(command.Flags())
	return command
}
