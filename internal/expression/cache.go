// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"runtime"
	"sync"
	"weak"
)

// compiled, compiledObjects and compiledDevices contain the expressions over nodes, objects
// and devices that are in use.
var (
	compiled        cache[Expression]
	compiledObjects cache[ObjectExpression]
	compiledDevices cache[DeviceExpression]
)

// cache contains expressions by their text. It holds weak pointers, so that it does not
// grow beyond the expressions of the existing gates.
type cache[E any] struct{ byText sync.Map } // of string to weak.Pointer[E]

// get returns the compiled expression with this text, or nil.
func (c *cache[E]) get(text string) *E {
	held, found := c.byText.Load(text)
	if !found {
		return nil
	}
	return held.(weak.Pointer[E]).Value()
}

// getOrCompile returns the compiled expression with this text, and compiles it if it is not in
// use.
func (c *cache[E]) getOrCompile(text string, compile func(string) (*E, error)) (*E, error) {
	if e := c.get(text); e != nil {
		return e, nil
	}
	e, err := compile(text)
	if err != nil {
		return nil, err
	}
	c.add(text, e)
	return e, nil
}

// add adds an expression.
func (c *cache[E]) add(text string, e *E) {
	held := weak.Make(e)
	c.byText.Store(text, held)
	runtime.AddCleanup(e, func(text string) { c.byText.CompareAndDelete(text, held) }, text)
}

// IsCompiled reports whether Compile would return immediately because an expression
// with the same text is in use.
func IsCompiled(text string) bool { return compiled.get(text) != nil }

// IsObjectCompiled is IsCompiled for CompileObject.
func IsObjectCompiled(text string) bool { return compiledObjects.get(text) != nil }

// IsDeviceCompiled is IsCompiled for CompileDevice.
func IsDeviceCompiled(text string) bool { return compiledDevices.get(text) != nil }
