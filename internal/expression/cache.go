// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"runtime"
	"sync"
	"weak"
)

// compiled contains the expressions that are in use, by their text. It holds weak
// pointers, so that it does not grow beyond the expressions of the existing gates.
var compiled sync.Map // of string to weak.Pointer[Expression]

// cached returns the compiled expression with this text, or nil.
func cached(text string) *Expression {
	held, found := compiled.Load(text)
	if !found {
		return nil
	}
	return held.(weak.Pointer[Expression]).Value()
}

// remember adds an expression to compiled.
func remember(text string, e *Expression) {
	held := weak.Make(e)
	compiled.Store(text, held)
	runtime.AddCleanup(e, func(text string) { compiled.CompareAndDelete(text, held) }, text)
}

// IsCompiled reports whether Compile would return immediately because an expression
// with the same text is in use.
func IsCompiled(text string) bool { return cached(text) != nil }
