// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// matching returns the cost of searching a text for a regular expression.
func matching(args []ref.Val) uint64 {
	return product(characters(len(textOf(args[0]))+1), steps(textOf(args[1])))
}

// steps returns the cost of a regular expression for each ten bytes of text. Repetitions are
// counted, because few bytes can repeat an expression hundreds of times.
func steps(pattern string) uint64 {
	byLength := max(uint64(len(pattern)+3)/4, 1)
	if !strings.Contains(pattern, "{") {
		return byLength
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return byLength
	}
	return max(byLength, uint64(instructions(tree, patternMax)))
}

// match is a call of matches whose text is limited. The planner replaces a call whose regular
// expression is a literal by a call with the same arguments, so the limit is in the argument.
type match struct {
	interpreter.InterpretableCall
	text limitedText
}

// limitedText is a text that is an error if searching it costs too much.
type limitedText struct {
	interpreter.InterpretableV2
	steps uint64
}

func limitMatch(call interpreter.InterpretableCall) interpreter.InterpretableV2 {
	pattern, ok := call.Args()[1].(interpreter.InterpretableConst)
	if !ok {
		return call // checkPattern accepts only literals
	}
	return &match{call, limitedText{call.Args()[0], steps(textOf(pattern.Value()))}}
}

// Args implements interpreter.InterpretableCall.
func (m *match) Args() []interpreter.InterpretableV2 {
	return []interpreter.InterpretableV2{m.text, m.InterpretableCall.Args()[1]}
}

// Eval implements interpreter.Interpretable.
func (m *match) Eval(vars interpreter.Activation) ref.Val { return m.Exec(interpreter.AsFrame(vars)) }

// Exec implements interpreter.InterpretableV2.
func (m *match) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	text, pattern := m.text.Exec(frame), m.InterpretableCall.Args()[1].Exec(frame)
	if matcher, ok := text.(traits.Matcher); ok {
		return matcher.Match(pattern)
	}
	return types.ValOrErr(text, "no such overload")
}

// Eval implements interpreter.Interpretable.
func (t limitedText) Eval(vars interpreter.Activation) ref.Val {
	return t.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (t limitedText) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	text := t.InterpretableV2.Exec(frame)
	if product(characters(len(textOf(text))+1), t.steps) > CostLimit {
		return errTooMuchWork()
	}
	return text
}
