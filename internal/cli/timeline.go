// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/timeline"
)

func newTimeline(c *connection) *cobra.Command {
	var o output
	var pods bool
	command := &cobra.Command{
		Use:   "timeline NODE",
		Short: "Draw how a node came to be fit for work",
		Long: "Draw how a node came to be fit for work: when it was created and became ready, when each signal of each gate\n" +
			"began to hold, when the gates opened, and when the first pod of a workload came.\n\n" +
			"It is told from what the API server keeps, which is the last of everything: of a condition the last transition,\n" +
			"of a gate the last opening, of pods those that are still there. What cannot be the first time is said to be in\n" +
			"doubt. A gate in DryRun has held nothing, and is left out.\n\n" +
			"It takes the same rights as 'kubectl gate why' and, unless --pods=false, list of pods. What may not be read is\n" +
			"not known, and told. Nothing is changed.\n\n" +
			"The exit status is 0, or 2 if the node could not be read.",
		Example:           "  kubectl gate timeline ip-10-0-3-17\n  kubectl gate timeline ip-10-0-3-17 -o json",
		ValidArgsFunction: c.oneNode,
		Args:              takesOneNode(&o),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			answer, err := trace(cmd.Context(), reader, args[0], pods)
			if err != nil {
				return err
			}
			return o.print(c.streams.Out, answer, func() string { return answer.text(chartFor(c.streams.Out)) })
		},
	}
	o.addFlags(command.Flags())
	command.Flags().BoolVar(&pods, "pods", true, "look at all pods of the node, for when containers started and the first workload came")
	return command
}

// Timeline is what 'kubectl gate timeline' prints with -o json and -o yaml. Fields
// are added, and neither renamed nor given another meaning.
type Timeline struct {
	// Time is when it was read.
	Time time.Time `json:"time"`
	timeline.Life
	// Unread says what could not be read, so that it is not known.
	Unread []string `json:"unread,omitempty"`
}

// trace reads a node, and says how it came to be as it is.
func trace(ctx context.Context, reader *cluster.Reader, arg string, pods bool) (*Timeline, error) {
	s, err := lookAt(ctx, reader, arg)
	if err != nil {
		return nil, err
	}
	all := s.facts.AllPods
	if pods && all == nil {
		if all, err = reader.AllPods(ctx, s.facts.Node.Name); err != nil {
			s.gaps = append(s.gaps, cluster.Gap{Err: err})
		}
	}
	return s.trace(all), nil
}

func (s *sight) trace(pods *gate.PodList) *Timeline {
	t := &Timeline{Time: s.now.UTC(), Life: timeline.Trace(s.gates, &s.facts, &s.decision, pods, s.now)}
	for i := range s.gaps {
		t.Unread = append(t.Unread, oneLine(s.gaps[i].Err))
	}
	return t
}
