// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

func newStatus(c *connection) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "status [GATE...]",
		Short: "Show the fleet by gate",
		Long: "Show the fleet by gate: how many nodes it selects, on how many it is open and closed, whether all is well\n" +
			"with it, and which node has waited longest, for what.\n\n" +
			"The figures are the controller's, from the gates' status. Where no controller runs, or it has not told of a\n" +
			"gate's present spec, that is said, and nodes are counted by the records that they carry. So are those of gates\n" +
			"that are no objects: gates from files, and gates that are gone and have left records.\n\n" +
			"It takes the rights to list nodegates.nodegate.dev and nodes, and to get the Lease nodegate in nodegate's\n" +
			"namespace (--namespace, or else " + v1alpha1.DefaultNamespace + "). What may not be read is told. Nothing is changed.\n\n" +
			"The exit status is 0 if all is well, 1 if a gate is not Ready, overdue, throttled, contended or gone, or no\n" +
			"controller runs, and 2 if that could not be found out.",
		Example:           "  kubectl gate status\n  kubectl gate status cilium -o wide\n  kubectl gate status -o json | jq '.gates[] | select(.nodes.overdue > 0)'",
		ValidArgsFunction: c.gateNames,
		Args:              func(*cobra.Command, []string) error { return o.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			answer, err := fleet(cmd.Context(), reader, c.installedIn(), args)
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

// FleetStatus is what 'kubectl gate status' prints with -o json and -o yaml. Fields
// are added, and neither renamed nor given another meaning.
type FleetStatus struct {
	// Time is when it was read.
	Time time.Time `json:"time"`
	// Well tells that nothing is known to be amiss.
	Well bool `json:"well"`
	// Controller tells whether the figures are kept up to date.
	Controller Controller `json:"controller"`
	// Gates are those that were asked for, or all, by name.
	Gates []GateStatus `json:"gates"`
	// Unread says what could not be read, so that it is not known.
	Unread []string `json:"unread,omitempty"`
}

// GateStatus is how one gate fares.
type GateStatus struct {
	// Gate is its name.
	Gate string `json:"gate"`
	// Source is where it is declared: crd or files. Empty if it is gone.
	Source string `json:"source,omitempty"`
	// Gone tells that there is no such NodeGate, only records on nodes.
	Gone bool `json:"gone,omitempty"`
	// Mode is Enforce, DryRun or Paused; empty where it is not known.
	Mode v1alpha1.Mode `json:"mode,omitempty"`
	// Taint is what the gate puts on a node.
	Taint string `json:"taint,omitempty"`
	// Ready is True, False or Unknown, as the condition is; Reason and Message say
	// why.
	Ready   string `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Troubles are the other conditions that are true and should not be.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Stale says why the controller's figures are not to be had, or not of now.
	Stale string `json:"stale,omitempty"`
	// FromRecords tells that nodes were counted by the records that they carry, and
	// not by the controller: throttled is not known then, and waiting has no signal.
	FromRecords bool `json:"fromRecords,omitempty"`
	// Nodes are the numbers of nodes; of a gate in DryRun, as it would be.
	Nodes *v1alpha1.NodeCounts `json:"nodes,omitempty"`
	// Waiting are the nodes that have waited longest, the first for longest.
	Waiting []v1alpha1.WaitingNode `json:"waiting,omitempty"`
}

// Trouble is a condition that is true and should not be.
type Trouble struct {
	Condition string `json:"condition"`
	Message   string `json:"message"`
}

// isWell tells whether nothing is known to be amiss with the gate.
func (g *GateStatus) isWell() bool {
	return g.Ready != "False" && !g.Gone && len(g.Troubles) == 0
}

// fleet reads how gates fare: those of these names, or all.
func fleet(ctx context.Context, reader *cluster.Reader, namespace string, names []string) (*FleetStatus, error) {
	answer := &FleetStatus{Gates: []GateStatus{}}
	var declared []v1alpha1.NodeGate
	var installed bool
	var nodes []*gate.Node
	var gatesErr, nodesErr error
	together(
		func() { declared, installed, gatesErr = declaredGates(ctx, reader) },
		func() { nodes, nodesErr = reader.Roster(ctx, cluster.Selection{}) },
		func() { answer.Controller = leader(ctx, reader, namespace) },
	)
	answer.Time = time.Now().UTC()
	if gatesErr != nil {
		return nil, gatesErr
	}
	if nodesErr != nil {
		if !installed {
			return nil, unanswered(nodesErr)
		}
		answer.Unread = append(answer.Unread, nodesErr.Error())
	}
	answer.fill(declared, nodes, nodesErr == nil)
	if !installed && len(answer.Gates) == 0 {
		return nil, fmt.Errorf("%w, and no node has a record of one", errNotInstalled)
	}
	if err := answer.choose(names); err != nil {
		return nil, err
	}
	answer.judge()
	return answer, nil
}

// judge tells whether all is well, as far as is known.
func (f *FleetStatus) judge() {
	f.Well = f.Controller.Running != answerNo && !slices.ContainsFunc(f.Gates, func(g GateStatus) bool { return !g.isWell() })
}

// choose keeps the gates of these names, if there are any.
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

// staleness says why the status of a gate is not of now, or nothing.
func (f *FleetStatus) staleness(ng *v1alpha1.NodeGate) string {
	switch {
	case ng.Status.ObservedGeneration <= 0:
		return "the controller has not told of this gate yet"
	case ng.Status.ObservedGeneration != ng.Generation:
		return fmt.Sprintf("the controller has not told of the gate's present spec yet (generation %d, and its status is of %d)", ng.Generation, ng.Status.ObservedGeneration)
	case f.Controller.Running == answerNo:
		return noController
	}
	return ""
}

// noController is why the status of every gate may be stale.
const noController = "no controller runs"
