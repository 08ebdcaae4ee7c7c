// SPDX-License-Identifier: Apache-2.0

// Package signal holds the kinds of signals, one file each, and compiles
// NodeGates into what the core evaluates.
package signal

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Compile returns the gate that a NodeGate declares. On an error the gate that
// is returned has no signals, so that it never opens by them, and is still
// good for keeping control of what it had closed. It is not accepted; of the
// others Accept decides.
func Compile(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
	spec := &ng.Spec
	g := gate.Gate{
		Name:         ng.Name,
		Source:       source,
		Created:      ng.CreationTimestamp.Time,
		Mode:         spec.Mode,
		Taint:        spec.Taint,
		RecloseTaint: ptr.Deref(spec.RecloseTaint, v1alpha1.Taint{}),
		Reclose:      spec.ReclosePolicy,
		Existing:     spec.ExistingNodes,
		CloseAfter:   seconds(spec.Timing.CloseAfterSeconds, 120),
		RolloutGrace: seconds(spec.Timing.RolloutGraceSeconds, 600),
		MinClosed:    seconds(&spec.Timing.MinClosedSeconds, 0),
		OpenAfter:    seconds(&spec.Timing.OpenAfterSeconds, 0),
		Deadline:     deadline(spec.Deadline),
		Stamp:        spec.OpenedAtAnnotation,
		CloseWhen:    spec.Follows(),
		Manual:       spec.Follows() && spec.Reopen == v1alpha1.ReopenManual,
		MayDetach:    slices.Contains(spec.Acknowledge, v1alpha1.AcknowledgeVolumeDetach),
	}
	// These two have no default in the schema, where it would collide with
	// closeWhen.
	if g.Reclose == "" {
		g.Reclose = v1alpha1.RecloseOnReboot
	}
	if g.Existing == "" {
		g.Existing = v1alpha1.ExistingIgnore
	}
	if ng.ReadError != "" {
		g.Selector, g.Broken = labels.Nothing(), true
		return g, errors.New("it is stored in a form that this version of nodegate cannot read: " + ng.ReadError)
	}
	var err error
	if g.Selector, err = spec.NodeSelector.AsSelector(); err != nil {
		g.Selector, g.Broken = labels.Nothing(), true
		return g, fmt.Errorf("compiling nodeSelector: %w", err)
	}
	if g.Signals, err = compileAll(spec); err != nil {
		g.Signals = nil
	}
	return g, err
}

// compileAll compiles the signals that a gate goes by.
func compileAll(spec *v1alpha1.NodeGateSpec) ([]gate.NamedSignal, error) {
	switch {
	case len(spec.OpenWhen) > 0 && len(spec.CloseWhen) > 0:
		return nil, errors.New("compiling openWhen: closeWhen names signals too, and a gate has only one of the two")
	case len(spec.OpenWhen)+len(spec.CloseWhen) == 0:
		return nil, errors.New("compiling openWhen and closeWhen: neither names a signal")
	case spec.Follows():
		return compileList(spec.CloseWhen)
	}
	return compileList(spec.OpenWhen)
}

func compileList(specs []v1alpha1.Signal) ([]gate.NamedSignal, error) {
	signals := make([]gate.NamedSignal, 0, len(specs))
	for i := range specs {
		s, err := compileSignal(&specs[i])
		if err != nil {
			return nil, fmt.Errorf("compiling signal %s: %w", specs[i].Name, err)
		}
		signals = append(signals, gate.NamedSignal{Name: specs[i].Name, Signal: s})
	}
	return signals, nil
}

func compileSignal(s *v1alpha1.Signal) (gate.Signal, error) {
	if len(s.AnyOf) > 0 {
		return newAnyOf(s.AnyOf)
	}
	return compile(&s.SignalSource)
}

func compile(s *v1alpha1.SignalSource) (gate.Signal, error) {
	switch {
	case s.DaemonSet != nil:
		return newDaemonSet(s.DaemonSet), nil
	case s.DaemonSets != nil:
		return newDaemonSets(s.DaemonSets)
	case s.Pods != nil:
		return newPods(s.Pods)
	case s.Condition != nil:
		return newCondition(s.Condition)
	case s.Label != nil:
		return newLabel(s.Label), nil
	case s.Annotation != nil:
		return newAnnotation(s.Annotation), nil
	case s.CSIDriver != nil:
		return newCSIDriver(s.CSIDriver), nil
	case s.Resource != nil:
		return newResource(s.Resource), nil
	case s.ResourceSlices != nil:
		return newResourceSlices(s.ResourceSlices), nil
	case s.Expression != "":
		return newExpression(s.Expression)
	}
	return nil, errors.New("this version of nodegate knows no such kind of signal")
}

func deadline(spec *v1alpha1.Deadline) gate.Deadline {
	if spec == nil {
		return gate.Deadline{}
	}
	return gate.Deadline{
		PodMissing: seconds(spec.PodMissingSeconds, 0),
		Ready:      seconds(spec.ReadySeconds, 0),
		Open:       spec.Action == v1alpha1.DeadlineOpen,
	}
}

// seconds reads a wait to which the API gives a default, which is not there
// where the API server did not read the gate.
func seconds(n *int32, byDefault int32) time.Duration {
	return time.Duration(ptr.Deref(n, byDefault)) * time.Second
}
