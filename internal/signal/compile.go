// SPDX-License-Identifier: Apache-2.0

// Package signal implements the kinds of signals, one per file, and compiles NodeGates
// into the form that the core evaluates.
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

// Compile returns the gate that a NodeGate declares. If there is an error, the returned
// gate has no signals, so it never opens because of them, but it still keeps control of
// the nodes that it closed. The caller must then treat it as not accepted; gate.Accept
// decides about the others.
func Compile(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
	spec := &ng.Spec
	g := declared(ng, source)
	if ng.ReadError != "" {
		g.Selector, g.Broken = labels.Nothing(), true
		return g, errors.New("the gate is stored in a form that this version of nodegate cannot read: " + ng.ReadError)
	}
	var err error
	if g.Selector, err = spec.NodeSelector.AsSelector(); err != nil {
		g.Selector, g.Broken = labels.Nothing(), true
		return g, fmt.Errorf("compiling nodeSelector: %w", err)
	}
	if g.Signals, err = compileAll(spec); err != nil {
		g.Signals = nil
	}
	g.Remembers = slices.ContainsFunc(g.Signals, func(s gate.NamedSignal) bool { return remembers(s.Signal) })
	for _, s := range g.Signals {
		needs := s.Needs(nil)
		g.ReadsWrites = g.ReadsWrites || needs.Taints || len(needs.Annotations) > 0
		g.ReadsHeartbeats = g.ReadsHeartbeats || needs.Heartbeats
	}
	return g, err
}

// Uncompiled returns the gate that a NodeGate declares, but without its selector and
// signals. The gate neither opens nor closes on any node.
func Uncompiled(ng *v1alpha1.NodeGate, source string) gate.Gate {
	g := declared(ng, source)
	g.Selector, g.Broken = labels.Nothing(), true
	return g
}

// declared returns the parts of a gate that need no compilation.
func declared(ng *v1alpha1.NodeGate, source string) gate.Gate {
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
		Together:     together(spec),
		Manual:       spec.Follows() && spec.Reopen == v1alpha1.ReopenManual,
		MayDetach:    slices.Contains(spec.Acknowledge, v1alpha1.AcknowledgeVolumeDetach),
	}
	// These fields have no default in the schema, because a default would conflict with
	// closeWhen.
	if g.Reclose == "" {
		g.Reclose = v1alpha1.RecloseOnReboot
	}
	if g.Existing == "" {
		g.Existing = v1alpha1.ExistingIgnore
	}
	return g
}

// compileAll compiles the gate's signals.
func compileAll(spec *v1alpha1.NodeGateSpec) ([]gate.NamedSignal, error) {
	if err := checkExpressions(spec); err != nil {
		return nil, err
	}
	switch {
	case len(spec.OpenWhen) > 0 && len(spec.CloseWhen) > 0:
		return nil, errors.New("compiling openWhen: closeWhen is set as well; set only one of them")
	case len(spec.OpenWhen)+len(spec.CloseWhen) == 0:
		return nil, errors.New("compiling openWhen and closeWhen: neither has a signal")
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
	case s.Completed != nil:
		return newCompleted(s.Completed)
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
		return newResourceSlices(s.ResourceSlices)
	case s.Object != nil:
		return newObject(s.Object)
	case s.Expression != "":
		return newExpression(s.Expression)
	}
	return nil, errors.New("this version of nodegate does not support this kind of signal")
}

func together(spec *v1alpha1.NodeGateSpec) *gate.Together {
	if spec.OpenTogether == nil {
		return nil
	}
	return &gate.Together{
		LabelKey: spec.OpenTogether.LabelKey, SizeLabelKey: spec.OpenTogether.SizeLabelKey,
		AtLeast: spec.OpenTogether.AtLeast, Closes: spec.ClosesTogether(),
	}
}

func deadline(spec *v1alpha1.Deadline) gate.Deadline {
	if spec == nil {
		return gate.Deadline{}
	}
	return gate.Deadline{
		PodMissing: seconds(spec.PodMissingSeconds, 0),
		Ready:      seconds(spec.ReadySeconds, 0),
		Open:       spec.Action == v1alpha1.DeadlineOpen,
		Publish:    spec.Publishes(),
	}
}

// seconds converts a field that has a default in the API. The field is nil if the API
// server did not process the gate.
func seconds(n *int32, byDefault int32) time.Duration {
	return time.Duration(ptr.Deref(n, byDefault)) * time.Second
}
