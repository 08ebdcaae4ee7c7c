// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
)

// object holds when an object of any kind belongs to the node, and an expression is true
// for it. The feed evaluates the expression, so that it need not store the object. The
// signal cannot determine the boot in which the object was written.
type object struct {
	levelSignal
	query gate.ObjectQuery
	// compiled keeps the expression in use.
	compiled *expression.ObjectExpression
}

func newObject(spec *v1alpha1.ObjectSignal) (gate.Signal, error) {
	// The API rejects these kinds too, but not in gates that were stored before it did.
	if err := spec.CheckKind(); err != nil {
		return nil, fmt.Errorf("compiling kind: %w", err)
	}
	s := object{query: gate.ObjectQuery{
		ObjectSource: gate.ObjectSource{Group: spec.Group, Version: spec.Version, Kind: spec.Kind, Namespace: spec.Namespace},
		NodeBy:       cmp.Or(spec.NodeBy, v1alpha1.NodeByName), NodeKey: spec.NodeLabel + spec.NodeField, Expression: spec.Expression,
	}}
	selector, err := v1alpha1.LabelSelector{MatchLabels: spec.MatchLabels}.AsSelector()
	if err != nil {
		return nil, fmt.Errorf("compiling matchLabels: %w", err)
	}
	s.query.Selector = selector.String()
	if (spec.NodeLabel != "") != (spec.NodeBy == v1alpha1.NodeByLabel) || (spec.NodeField != "") != (spec.NodeBy == v1alpha1.NodeByField) {
		return nil, fmt.Errorf("compiling nodeBy %s: it cannot be combined with nodeLabel %q and nodeField %q", spec.NodeBy, spec.NodeLabel, spec.NodeField)
	}
	if s.compiled, err = expression.CompileObject(spec.Expression); err != nil {
		return nil, fmt.Errorf("compiling its expression: %w", err)
	}
	return s, nil
}

// Read implements gate.Signal. All of the node's objects must hold. The first one that
// does not is reported; one that does not hold takes precedence over an unknown one.
func (s object) Read(in gate.Input) gate.Reading {
	found, observed := in.Objects[s.query]
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: s.query.String()}
	}
	r := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: s.query.String()}
	for i := range found {
		one := s.readOne(&found[i], in)
		switch {
		case i == 0, r.State == gate.Holds, r.State == gate.Unknown && one.State == gate.NotYet:
			r = one
		}
	}
	return r
}

func (s object) readOne(o *gate.Object, in gate.Input) gate.Reading {
	r := gate.Reading{State: o.State, Subject: s.query.Kind + " " + o.Name}
	switch {
	case o.Owner != "" && o.Owner != in.Node.UID:
		r.State, r.Reason = gate.NotYet, v1alpha1.ReadingFormerNode
	case o.State == gate.Holds:
		r.Reason = v1alpha1.ReadingMatches
	case o.State == gate.NotYet:
		r.Reason = v1alpha1.ReadingDiffers
	default:
		r.Reason, r.Subject = v1alpha1.ReadingExpressionFailed, r.Subject+": "+o.Error
	}
	return r
}

// Needs implements gate.Signal.
func (s object) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{Objects: []gate.ObjectQuery{s.query}}
}
