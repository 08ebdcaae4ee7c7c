// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/status"
)

func newStatus(c *connection) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "status [GATE...]",
		Short: "Show a summary of all nodes by gate",
		Long: "Show for each gate how many nodes it selects, on how many it is open and closed, whether it has problems, and\n" +
			"which node has been waiting longest and for what.\n\n" +
			"The counts come from the gates' status, which the controller maintains. If no controller is running, or if it has\n" +
			"not reported status for a gate's current spec, the output says so, and nodes are counted by the records that they\n" +
			"carry. The same applies to gates without a NodeGate object: gates from files, and deleted gates that still\n" +
			"have records on nodes.\n\n" +
			"Required permissions: list nodegates.nodegate.dev and nodes; get the Lease nodegate in nodegate's namespace\n" +
			"(--namespace, default " + v1alpha1.DefaultNamespace + "). The output lists what could not be read. Nothing is changed.\n\n" +
			"The exit status is 0 if there are no problems, 1 if a gate is not Ready, overdue, throttled, contended or deleted,\n" +
			"or if no controller is running, and 2 if this could not be determined.",
		Example:           "  kubectl gate status\n  kubectl gate status cilium -o wide\n  kubectl gate status -o json | jq '.gates[] | select(.nodes.overdue > 0)'",
		ValidArgsFunction: c.gateNames,
		Args:              func(*cobra.Command, []string) error { return o.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			answer, err := readStatus(cmd.Context(), reader, c.installNamespace(), parseGateNames(args))
			if err != nil {
				return err
			}
			text := func() string { return answer.Text(marksFor(c.streams.Out), o.format == formatWide) }
			if o.format == formatName {
				text = answer.KubectlNames
			}
			if err := o.print(cmd.Context(), c.streams.Out, answer, text); err != nil {
				return err
			}
			switch {
			case !answer.Well:
				return errNo
			case !answer.IsComplete():
				return errIncompleteStatus
			}
			return nil
		},
	}
	o.addFlags(command.Flags(), formatWide, formatName)
	return command
}

// errIncompleteStatus is returned if a status contains no problem, but a problem may be unknown.
var errIncompleteStatus = errors.New("no problem was found, but not everything is known: see what could not be read, and which gates have no current status")

// readStatus reads the status of the named gates, or of all gates if there are no names.
func readStatus(ctx context.Context, reader *read.Reader, namespace string, names []string) (*status.Status, error) {
	var f status.Facts
	var declared []v1alpha1.NodeGate
	var installed bool
	var gatesErr, nodesErr error
	var leader leadership
	concurrently(
		func() { declared, installed, gatesErr = declaredGates(ctx, reader) },
		func() { f.Nodes, nodesErr = reader.NodeMetadata(ctx, read.NodeSelection{}) },
		func() { leader = readLeadership(ctx, reader, namespace) },
	)
	f.Now = reader.Now()
	f.Controller = leader.controller(declared, f.Now)
	if gatesErr != nil {
		return nil, gatesErr
	}
	if nodesErr != nil {
		if !installed {
			return nil, describeRequestError(nodesErr)
		}
		f.NodesUnread, f.Unread = true, []string{printer.OneLine(nodesErr)}
	}
	f.Gates, f.NotServed = gateset.Reported(declared), !installed
	answer := status.Of(&f)
	if !installed && len(answer.Gates) == 0 {
		return nil, fmt.Errorf("%w, and no node has a gate record", errNotInstalled)
	}
	if len(names) > 0 {
		err := checkGateNames(names, answer.Names())
		switch {
		case err != nil && nodesErr != nil:
			return nil, fmt.Errorf("%w; whether nodes have its records is unknown: %w", err, describeRequestError(nodesErr))
		case err != nil:
			return nil, err
		}
		answer.Keep(names)
	}
	return answer, nil
}
