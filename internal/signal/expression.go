// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
)

// celExpression holds when a CEL expression is true of the node. It looks at
// levels, and proves no boot.
type celExpression struct {
	levelSignal
	*expression.Expression
}

func newExpression(text string) (gate.Signal, error) {
	compiled, err := expression.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("compiling its expression: %w", err)
	}
	return celExpression{Expression: compiled}, nil
}

// Read implements gate.Signal. An expression that has no answer says nothing.
func (s celExpression) Read(in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDiffers, Subject: "the expression"}
	switch holds, err := s.Holds(&in.Node, in.Taint.Key, in.OtherTaint.Key); {
	case err != nil:
		r.State, r.Reason, r.Subject = gate.Unknown, v1alpha1.ReadingExpressionFailed, err.Error()
	case holds:
		r.State, r.Reason = gate.Holds, v1alpha1.ReadingMatches
	}
	return r
}

// Needs implements gate.Signal.
func (s celExpression) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{
		Annotations: s.Annotations(), Resources: s.Resources(), NodeInfo: s.NodeInfo(),
		AllConditions: s.LooksAtConditions(), Taints: s.LooksAtTaints(),
	}
}
