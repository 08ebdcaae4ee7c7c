// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// levelSignal provides the methods of signals that depend on no pods. Unless a signal
// overrides them, it does not prove the boot, and needs nothing but what every gate reads.
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
	keyValue
}

func newLabel(spec *v1alpha1.KeyValueSignal) gate.Signal {
	return label{keyValue: keyValue{key: spec.Key, value: spec.Value, subject: "label " + spec.Key}}
}

// Read implements gate.Signal.
func (s label) Read(in gate.Input) gate.Reading {
	return s.readIn(in.Node.Labels)
}

// annotation holds when the node carries an annotation.
type annotation struct {
	levelSignal
	keyValue
}

func newAnnotation(spec *v1alpha1.KeyValueSignal) gate.Signal {
	return annotation{keyValue: keyValue{key: spec.Key, value: spec.Value, subject: "annotation " + spec.Key}}
}

// Read implements gate.Signal.
func (s annotation) Read(in gate.Input) gate.Reading {
	return s.readIn(in.Node.Annotations)
}

// Needs implements gate.Signal.
func (s annotation) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{Annotations: []string{s.key}}
}

// keyValue matches a key and, if set, its value.
type keyValue struct {
	key   string
	value *string
	// subject is the subject of readings.
	subject string
}

func (s keyValue) readIn(have map[string]string) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Subject: s.subject}
	got, ok := have[s.key]
	switch {
	case !ok:
		r.Reason = v1alpha1.ReadingMissing
	case s.value != nil && got != *s.value:
		r.Reason = v1alpha1.ReadingDiffers
	default:
		r.State, r.Reason = gate.Holds, v1alpha1.ReadingMatches
	}
	return r
}
