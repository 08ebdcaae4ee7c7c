// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/explain"
)

func newWhy(c *connection) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "why NODE",
		Short: "Explain which gates hold a node and why",
		Long: "Explain the state of each gate on a node: since when and why the gate is in this state, what its signals report,\n" +
			"what keeps it from opening, and what to do next. For a gate in DryRun, the output shows what the gate would do if\n" +
			"its mode were switched to Enforce now.\n\n" +
			"The decision is that of the controller, made from what you have permission to read: get the node; list\n" +
			"nodegates.nodegate.dev; where a gate of the node depends on them, list pods, daemonsets and resourceslices and\n" +
			"get csinodes; if the node is unreachable, list nodes. What cannot be read is unknown, and the output lists it.\n" +
			"Nothing is changed.\n\n" +
			"The exit status is 0 if no gate holds the node, 1 if a gate holds it or is about to, and 2 if this could not be\n" +
			"determined. A gate in DryRun holds nothing.",
		Example:           "  kubectl gate why ip-10-0-3-17\n  kubectl gate why ip-10-0-3-17 -o json",
		ValidArgsFunction: c.oneNode,
		Args:              oneNodeArgument(&o),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			s, err := takeSnapshot(cmd.Context(), reader, args[0])
			if err != nil {
				return err
			}
			answer := s.explain()
			if err := o.print(c.streams.Out, answer, func() string { return answer.Text(marksFor(c.streams.Out)) }); err != nil {
				return err
			}
			if answer.Held {
				return errNo
			}
			return nil
		},
	}
	o.addFlags(command.Flags())
	return command
}

func (s *snapshot) explain() *explain.Explanation {
	f := &explain.Facts{Gates: s.gates, Node: s.facts, Decision: s.decision, Now: s.now}
	for i := range s.gaps {
		f.ReadErrors = append(f.ReadErrors, explain.ReadError{Message: s.gaps[i].Err.Error(), Hides: s.gaps[i].Hides})
	}
	return explain.Of(f)
}
