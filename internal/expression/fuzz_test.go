// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"testing"

	"github.com/nodegate/nodegate/internal/gate"
)

// Whatever is written as an expression is refused or has an answer or an error,
// and counting what it costs changes neither.
func FuzzExpression(f *testing.F) {
	for _, text := range truths {
		f.Add(text)
	}
	f.Add(`labels["zone"] == "a"`)
	f.Add(`[1, 2].map(annotations, annotations)[0] == 1`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Compile(text)
		if err != nil {
			return
		}
		for _, n := range []*gate.Node{aNode(), {}} {
			holds, err := e.Holds(n, ownKey)
			if err != nil && holds {
				t.Fatalf("%q holds, and fails: %v", text, err)
			}
			if e.uncounted == nil {
				continue
			}
			e := &Expression{counted: e.counted}
			if again, other := e.Holds(n, ownKey); again != holds || (other == nil) != (err == nil) {
				t.Fatalf("%q: %v, %v; counted %v, %v", text, holds, err, again, other)
			}
		}
	})
}
