// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Decide decides about a node with all gates of the set. It sets the taint keys of gates
// in the facts.
func (s *Set) Decide(facts *gate.Facts, now time.Time) gate.Decision {
	facts.Transient.GateKeys = s.Keys
	return gate.Decide(s.Gates, facts, now)
}

// DecideNode decides about a node from the Node object alone.
func (s *Set) DecideNode(n *gate.Node, now time.Time) gate.Decision {
	return s.Decide(&gate.Facts{Node: *n, DaemonSets: &gate.DaemonSets{}}, now)
}

// WithoutSignals returns the set with all signals replaced by unknown ones. These neither
// open nor close a gate, so that decisions depend on records, labels, taints and overrides
// only.
func (s *Set) WithoutSignals() *Set {
	out := *s
	out.Gates = slices.Clone(s.Gates)
	for i := range out.Gates {
		signals := slices.Clone(out.Gates[i].Signals)
		for j := range signals {
			signals[j].Signal = unknownSignal{}
		}
		out.Gates[i].Signals = signals
	}
	return &out
}

// unknownSignal is a signal that is not read.
type unknownSignal struct{}

func (unknownSignal) Read(gate.Input) gate.Reading {
	return gate.Reading{State: gate.Unknown, Reason: v1alpha1.ReadingNotObserved}
}
func (unknownSignal) Evidence(*gate.Facts) ([]gate.Pod, bool) { return nil, false }
func (unknownSignal) ProvesBoot() bool                        { return false }
func (unknownSignal) Needs(*gate.DaemonSets) gate.Needs       { return gate.Needs{} }
