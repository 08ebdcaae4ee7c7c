// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/timeline"
)

func newTimeline(c *connection) *cobra.Command {
	var o output
	var pods bool
	command := &cobra.Command{
		Use:   "timeline NODE",
		Short: "Draw a timeline of a node from its creation until its gates opened",
		Long: "Draw a timeline of a node: when it was created and became ready, when each signal of each gate started to hold, when\n" +
			"the gates opened, and when the first workload pod was bound.\n\n" +
			"The timeline is based on what the API server stores, which is always the latest event of a kind: the last transition\n" +
			"of a condition, the last opening of a gate, and the pods that still exist. A time that may not be the first one is\n" +
			"marked as doubtful. Gates in DryRun hold no nodes, and are omitted.\n\n" +
			"Required permissions: those of 'kubectl gate why' and, unless --pods=false, list pods. What cannot be read is\n" +
			"unknown, and the output lists it. Nothing is changed.\n\n" +
			"The exit status is 0, or 2 if the node could not be read.",
		Example:           "  kubectl gate timeline ip-10-0-3-17\n  kubectl gate timeline ip-10-0-3-17 -o json",
		ValidArgsFunction: c.oneNode,
		Args:              oneNodeArgument(&o, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			answer, err := trace(cmd.Context(), reader, args[0], pods)
			if err != nil {
				return err
			}
			return o.print(cmd.Context(), c.streams.Out, answer, func() string { return answer.Text(layoutFor(c.streams.Out)) })
		},
	}
	o.addFlags(command.Flags())
	command.Flags().BoolVar(&pods, "pods", true, "read all pods of the node, to include when containers started and when the first workload pod was bound")
	return command
}

// trace reads a node and creates its timeline.
func trace(ctx context.Context, reader *read.Reader, arg string, pods bool) (*timeline.Timeline, error) {
	s, err := takeSnapshot(ctx, reader, arg)
	if err != nil {
		return nil, err
	}
	all := s.facts.AllPods
	if pods && all == nil {
		if all, err = reader.AllPods(ctx, s.facts.Node.Name); err != nil {
			s.gaps = append(s.gaps, read.Error{Err: err})
		}
	}
	return s.trace(all), nil
}

func (s *snapshot) trace(pods *gate.PodList) *timeline.Timeline {
	return &timeline.Timeline{
		Time: s.now.UTC(), History: timeline.Trace(s.gates.Gates, &s.facts, &s.decision, pods, s.now), Unread: messages(s.gaps),
	}
}
