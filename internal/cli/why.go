// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/printer"
)

func newWhy(c *connection) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "why NODE | pod/NAMESPACE/NAME | deployment/NAMESPACE/NAME",
		Short: "Explain which gates hold a node, or keep a pod off nodes, and why",
		Long: "Explain the state of each gate on a node: since when and why the gate is in this state, what its signals report,\n" +
			"what keeps it from opening, and what to do next. For a gate in DryRun, the output shows what the gate would do if\n" +
			"its mode were switched to Enforce now.\n\n" +
			"The decision is that of the controller, made from what you have permission to read: get the node; list\n" +
			"nodegates.nodegate.dev; where a gate of the node depends on them, list pods, daemonsets, resourceslices,\n" +
			"devicetaintrules and objects of the kinds that gates name, and get csinodes; if the node is unreachable, or a gate opens together, list\n" +
			"nodes. What cannot be read is unknown, and the output lists it. Nothing is changed.\n\n" +
			"For a pending pod, or a pod as a deployment creates it, explain which gates keep it off which nodes, on which of\n" +
			"these it could run if the gates were open, what the gates wait for, and how long this took on other nodes.\n" +
			"Whether it could run on a node is checked by the pod's node selector and affinity, taints, and requested resources, but not by\n" +
			"other pods (affinity, topology spread, host ports), volumes and DRA claims. A node that a gate holds counts as one on which the pod\n" +
			"could run if it only lacks what is expected while it is set up: it has a taint such as node.kubernetes.io/not-ready, or\n" +
			"resources or devices have not registered yet. Missing devices count as an obstacle if the gate waits for other\n" +
			"resources, or if open nodes of the same instance type that have been Ready for ten minutes have none, or fewer than\n" +
			"the pod requests. The output lists what is missing. This requires permission to list nodes and pods, and to\n" +
			"get the pod or the deployment, and the RuntimeClass in its template, whose requirements the API server adds to the pod.\n" +
			"For a pod that a kubelet has rejected because the node was not ready for it, the output shows the kubelet's reason.\n\n" +
			"The exit status is 0 if no gate holds the node, 1 if a gate holds it or is about to, and 2 if this could not be\n" +
			"determined. For a pod, it is 1 if a gate keeps it off a node on which it could run, and 0 also if the API server rejects\n" +
			"the pods of the deployment because of their RuntimeClass, which the output then says. A gate in DryRun holds nothing,\n" +
			"and neither does a gate with the effect PreferNoSchedule, which does not keep pods off nodes.",
		Example: "  kubectl gate why ip-10-0-3-17\n  kubectl gate why ip-10-0-3-17 -o json\n" +
			"  kubectl gate why pod/web/frontend-6d5f7-x2x9p\n  kubectl gate why deployment/web/frontend",
		ValidArgsFunction: c.oneNode,
		Args:              oneNodeArgument(&o, ", pod/NAMESPACE/NAME or deployment/NAMESPACE/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			if w, is, err := parseWorkload(args[0]); is {
				if err != nil {
					return err
				}
				return c.whyWorkload(cmd.Context(), reader, w, &o)
			}
			s, err := takeSnapshot(cmd.Context(), reader, args[0])
			if err != nil {
				return err
			}
			answer := s.explain()
			if err := o.print(cmd.Context(), c.streams.Out, answer, func() string { return answer.Text(marksFor(c.streams.Out)) }); err != nil {
				return err
			}
			switch {
			case answer.Held:
				return errNo
			case answer.Incomplete:
				return errMayClose
			}
			return nil
		},
	}
	o.addFlags(command.Flags())
	return command
}

// errMayClose is returned if no gate holds a node, but one may be about to.
var errMayClose = errors.New("no gate holds the node, but not everything that gates depend on could be read, so one may be about to close")

// errMayKeepOff is returned if no gate is known to keep a pod off nodes on which it could run, but
// one may.
var errMayKeepOff = errors.New("no gate is known to keep the pod off a node on which it could run, but not everything could be read, so one may")

// whyWorkload prints which gates keep a workload's pod off nodes.
func (c *connection) whyWorkload(ctx context.Context, reader *read.Reader, w workload, o *output) error {
	answer, err := w.explain(ctx, reader)
	if err != nil {
		return err
	}
	if err := o.print(ctx, c.streams.Out, answer, answer.Text); err != nil {
		return err
	}
	switch {
	case answer.WouldFit > 0:
		return errNo
	case len(answer.Unread) > 0:
		return errMayKeepOff
	}
	return nil
}

func (s *snapshot) explain() *explain.Explanation {
	f := &explain.Facts{Gates: s.gates, Node: s.facts, Decision: s.decision, Now: s.now}
	for i := range s.gaps {
		f.ReadErrors = append(f.ReadErrors, explain.ReadError{Message: printer.OneLine(s.gaps[i].Err), Hides: s.gaps[i].Hides})
	}
	return explain.Of(f)
}
