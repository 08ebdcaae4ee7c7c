// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
)

// celExpression holds when a CEL expression is true for the node. It proves no boot.
type celExpression struct {
	levelSignal
	*expression.Expression
}

// textMax is the maximum total length of a gate's expressions in bytes: four times the
// maximum of one expression. It limits how long a gate takes to compile.
const textMax = 4 * expression.TextMax

// Expressions contains the distinct texts of a gate's expressions, over nodes, over
// objects of other kinds and over devices.
type Expressions struct{ Nodes, Objects, Devices []string }

// ExpressionsOf returns a gate's expressions.
func ExpressionsOf(spec *v1alpha1.NodeGateSpec) Expressions {
	var all Expressions
	for _, s := range v1alpha1.Sources(spec.OpenWhen, spec.CloseWhen) {
		if s.Expression != "" {
			all.Nodes = append(all.Nodes, s.Expression)
		}
		if s.Object != nil {
			all.Objects = append(all.Objects, s.Object.Expression)
		}
		if s.ResourceSlices != nil {
			all.Devices = append(all.Devices, expressionsOf(s.ResourceSlices.Selectors)...)
		}
	}
	for _, texts := range []*[]string{&all.Nodes, &all.Objects, &all.Devices} {
		slices.Sort(*texts)
		*texts = slices.Compact(*texts)
	}
	return all
}

// checkExpressions returns an error if a gate's expressions are too long in total.
func checkExpressions(spec *v1alpha1.NodeGateSpec) error {
	sum, all := 0, ExpressionsOf(spec)
	for _, text := range slices.Concat(all.Nodes, all.Objects, all.Devices) {
		sum += len(text)
	}
	if sum > textMax {
		return fmt.Errorf("compiling expressions: they have %d bytes in total, but a gate may have at most %d; "+
			"shorten them, or split the gate", sum, textMax)
	}
	return nil
}

func newExpression(text string) (gate.Signal, error) {
	compiled, err := expression.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("compiling its expression: %w", err)
	}
	return celExpression{Expression: compiled}, nil
}

// Read implements gate.Signal. The signal is unknown if the expression cannot be
// evaluated.
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
		AllConditions: s.ReadsConditions(), Taints: s.ReadsTaints(),
	}
}
