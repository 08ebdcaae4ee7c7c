// SPDX-License-Identifier: Apache-2.0

// Package status summarizes the nodes of each gate: from the gate's status if a controller
// maintains it, and otherwise from the records that the nodes carry. It does no I/O.
package status

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Values of Controller.Running.
const (
	Yes     = "Yes"
	No      = "No"
	Unknown = "Unknown"
)

// Controller describes whether a controller is running.
type Controller struct {
	// Running is Yes, No or Unknown.
	Running string `json:"running"`
	// Message is a human-readable explanation.
	Message string `json:"message"`
	// Holder is the holder of the Lease, and Renewed is the time of its last renewal.
	Holder  string    `json:"holder,omitempty"`
	Renewed time.Time `json:"renewed,omitzero"`
}

// Status is the output of 'kubectl gate status' with -o json and -o yaml. Fields
// may be added, but are neither renamed nor changed in meaning.
type Status struct {
	// Time is the time of the read.
	Time time.Time `json:"time"`
	// Well is true if no problem is known.
	Well bool `json:"well"`
	// Controller describes whether a controller keeps the counts up to date.
	Controller Controller `json:"controller"`
	// Gates are the requested gates, or all gates, sorted by name.
	Gates []Gate `json:"gates"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
}

// Gate is the status of a gate.
type Gate struct {
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
	// result if the gate acted, which only a controller knows. Nil if they are unknown.
	Nodes *v1alpha1.NodeCounts `json:"nodes,omitempty"`
	// NonMembers lists the selected nodes that are not members, by reason. Empty if the
	// nodes were counted by the records that they carry.
	NonMembers []v1alpha1.NonMembers `json:"nonMembers,omitempty"`
	// Waiting lists the nodes that have been waiting longest, longest first.
	Waiting []v1alpha1.WaitingNode `json:"waiting,omitempty"`
}

// Trouble is a problem with a gate.
type Trouble struct {
	// Condition is the type of the condition that reports the problem, or would if the gate had
	// conditions.
	Condition string `json:"condition"`
	Message   string `json:"message"`
}

// Facts are what a status is based on.
type Facts struct {
	Gates *gateset.Set
	// NotServed is true if the API server does not serve NodeGates.
	NotServed bool
	// Nodes are all nodes. Nil with NodesUnread set if they could not be read.
	Nodes       []*gate.Node
	NodesUnread bool
	Controller  Controller
	// Unread lists the read errors.
	Unread []string
	// Now is the time of the read.
	Now time.Time
}

// Of returns the status of all gates: of the declared gates, and of the gates that have
// records on nodes.
func Of(f *Facts) *Status {
	s := &Status{Time: f.Now.UTC(), Controller: f.Controller, Gates: []Gate{}, Unread: f.Unread}
	s.fill(f)
	s.setWell()
	return s
}

// Names returns the names of the gates, sorted.
func (s *Status) Names() []string {
	names := make([]string, 0, len(s.Gates))
	for i := range s.Gates {
		names = append(names, s.Gates[i].Gate)
	}
	return names
}

// Keep removes all gates but the named ones.
func (s *Status) Keep(names []string) {
	s.Gates = slices.DeleteFunc(s.Gates, func(g Gate) bool { return !slices.Contains(names, g.Gate) })
	s.setWell()
}

func (s *Status) setWell() {
	s.Well = s.Controller.Running != No && !slices.ContainsFunc(s.Gates, func(g Gate) bool { return !g.isWell() })
}

// isWell reports whether no problem with the gate is known. If the nodes were counted by their
// records, no condition of the gate reports those that are overdue.
func (g *Gate) isWell() bool {
	overdue := g.FromRecords && g.Nodes != nil && g.Nodes.Overdue > 0
	return g.Ready != "False" && !g.Gone && len(g.Troubles) == 0 && !overdue
}

// IsComplete reports whether everything is known that could be a problem. A gate from a file
// has no conditions, so its records are all there is.
func (s *Status) IsComplete() bool {
	return s.Controller.Running != Unknown && len(s.Unread) == 0 && !slices.ContainsFunc(s.Gates, func(g Gate) bool {
		return g.Source == v1alpha1.SourceCRD && g.Ready == string(metav1.ConditionUnknown)
	})
}

// staleness returns the reason why the status of a gate is outdated, or "".
func (s *Status) staleness(ng *v1alpha1.NodeGate) string {
	switch {
	case ng.Status.ObservedGeneration <= 0:
		return "the controller has not reported status for this gate yet"
	case ng.Status.ObservedGeneration != ng.Generation:
		return fmt.Sprintf("the controller has not reported status for the gate's current spec yet (generation %d, observed generation %d)", ng.Generation, ng.Status.ObservedGeneration)
	case s.Controller.Running == No:
		return noController
	}
	return ""
}

// noController is the reason why the status of every gate may be outdated.
const noController = "no controller is running"
