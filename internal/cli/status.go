// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
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
			answer, err := fleet(cmd.Context(), reader, c.installNamespace(), args)
			if err != nil {
				return err
			}
			if err := o.print(c.streams.Out, answer, func() string { return answer.text(marksFor(c.streams.Out), o.format) }); err != nil {
				return err
			}
			if !answer.Well {
				return errNo
			}
			return nil
		},
	}
	o.addFlags(command.Flags(), formatWide, formatName)
	return command
}

// FleetStatus is the output of 'kubectl gate status' with -o json and -o yaml. Fields
// may be added, but are neither renamed nor changed in meaning.
type FleetStatus struct {
	// Time is the time of the read.
	Time time.Time `json:"time"`
	// Well is true if no problem is known.
	Well bool `json:"well"`
	// Controller describes whether a controller keeps the counts up to date.
	Controller Controller `json:"controller"`
	// Gates are the requested gates, or all gates, sorted by name.
	Gates []GateStatus `json:"gates"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
}

// GateStatus is the status of a gate.
type GateStatus struct {
	// Gate is the name of the gate.
	Gate string `json:"gate"`
	// Source is where the gate is declared: crd or files. Empty for a deleted gate.
	Source string `json:"source,omitempty"`
	// Gone is true if the NodeGate does not exist and only records on nodes remain.
	Gone bool `json:"gone,omitempty"`
	// Mode is Enforce, DryRun or Paused, or empty if unknown.
	Mode v1alpha1.Mode `json:"mode,omitempty"`
	// Taint is the taint that the gate adds to nodes.
	Taint string `json:"taint,omitempty"`
	// Ready is the status of the condition Ready: True, False or Unknown. Reason and
	// Message are those of the condition.
	Ready   string `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Troubles are the other conditions that report a problem.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Stale is the reason why the controller's counts are missing or outdated.
	Stale string `json:"stale,omitempty"`
	// FromRecords is true if the nodes were counted by the records that they carry
	// instead of by the controller. throttled is then unknown, and waiting has no
	// signals.
	FromRecords bool `json:"fromRecords,omitempty"`
	// Nodes are the node counts. For a gate in DryRun, they are the counts that would
	// result if the gate acted.
	Nodes *v1alpha1.NodeCounts `json:"nodes,omitempty"`
	// NonMembers lists the selected nodes that are not members, by reason.
	NonMembers []v1alpha1.NonMembers `json:"nonMembers,omitempty"`
	// Waiting lists the nodes that have been waiting longest, longest first.
	Waiting []v1alpha1.WaitingNode `json:"waiting,omitempty"`
}

// Trouble is a condition that is true and reports a problem.
type Trouble struct {
	Condition string `json:"condition"`
	Message   string `json:"message"`
}

// isWell reports whether no problem with the gate is known.
func (g *GateStatus) isWell() bool {
	return g.Ready != "False" && !g.Gone && len(g.Troubles) == 0
}

// fleet reads the status of the named gates, or of all gates if there are no names.
func fleet(ctx context.Context, reader *read.Reader, namespace string, names []string) (*FleetStatus, error) {
	answer := &FleetStatus{Gates: []GateStatus{}}
	var declared []v1alpha1.NodeGate
	var installed bool
	var nodes []*gate.Node
	var gatesErr, nodesErr error
	concurrently(
		func() { declared, installed, gatesErr = declaredGates(ctx, reader) },
		func() { nodes, nodesErr = reader.NodeMetadata(ctx, read.NodeSelection{}) },
		func() { answer.Controller = leader(ctx, reader, namespace) },
	)
	answer.Time = time.Now().UTC()
	if gatesErr != nil {
		return nil, gatesErr
	}
	if nodesErr != nil {
		if !installed {
			return nil, describeRequestError(nodesErr)
		}
		answer.Unread = append(answer.Unread, nodesErr.Error())
	}
	answer.fill(declared, nodes, nodesErr == nil)
	if !installed && len(answer.Gates) == 0 {
		return nil, fmt.Errorf("%w, and no node has a gate record", errNotInstalled)
	}
	if err := answer.choose(names); err != nil {
		return nil, err
	}
	answer.judge()
	return answer, nil
}

// judge sets Well.
func (f *FleetStatus) judge() {
	f.Well = f.Controller.Running != answerNo && !slices.ContainsFunc(f.Gates, func(g GateStatus) bool { return !g.isWell() })
}

// choose removes all gates but the named ones, if there are names.
func (f *FleetStatus) choose(names []string) error {
	var all []string
	for i := range f.Gates {
		all = append(all, f.Gates[i].Gate)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return noSuchGate(name, all)
		}
	}
	if len(names) > 0 {
		f.Gates = slices.DeleteFunc(f.Gates, func(g GateStatus) bool { return !slices.Contains(names, g.Gate) })
	}
	return nil
}

// staleness returns the reason why the status of a gate is outdated, or "".
func (f *FleetStatus) staleness(ng *v1alpha1.NodeGate) string {
	switch {
	case ng.Status.ObservedGeneration <= 0:
		return "the controller has not reported status for this gate yet"
	case ng.Status.ObservedGeneration != ng.Generation:
		return fmt.Sprintf("the controller has not reported status for the gate's current spec yet (generation %d, observed generation %d)", ng.Generation, ng.Status.ObservedGeneration)
	case f.Controller.Running == answerNo:
		return noController
	}
	return ""
}

// noController is the reason why the status of every gate may be outdated.
const noController = "no controller is running"
