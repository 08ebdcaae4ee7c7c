// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// levelSignal is a signal that looks at the Node itself, and takes what it
// finds there as it is: nothing tells in which boot it was written.
type levelSignal struct{}

// Evidence implements gate.Signal.
func (levelSignal) Evidence(*gate.Facts) ([]gate.Pod, bool) { return nil, true }

// ProvesBoot implements gate.Signal.
func (levelSignal) ProvesBoot() bool { return false }

// Needs implements gate.Signal.
func (levelSignal) Needs(*gate.DaemonSets) gate.Needs { return gate.Needs{} }

// label holds when the node carries a label.
type label struct {
	levelSignal
	key   string
	value *string
}

// Read implements gate.Signal.
func (s label) Read(in gate.Input) gate.Reading {
	return readKeyValue("label", s.key, s.value, in.Node.Labels)
}

// annotation holds when the node carries an annotation.
type annotation struct {
	levelSignal
	key   string
	value *string
}

// Read implements gate.Signal.
func (s annotation) Read(in gate.Input) gate.Reading {
	return readKeyValue("annotation", s.key, s.value, in.Node.Annotations)
}

// Needs implements gate.Signal.
func (s annotation) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{Annotations: []string{s.key}}
}

func readKeyValue(what, key string, want *string, have map[string]string) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Subject: what + " " + key}
	got, ok := have[key]
	switch {
	case !ok:
		r.Reason = v1alpha1.ReadingMissing
	case want != nil && got != *want:
		r.Reason = v1alpha1.ReadingDiffers
	default:
		r.State, r.Reason = gate.Holds, v1alpha1.ReadingMatches
	}
	return r
}
