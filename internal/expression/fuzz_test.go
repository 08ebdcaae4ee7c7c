// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"testing"

	"github.com/nodegate/nodegate/internal/gate"
)

// FuzzExpression checks that any text is rejected or can be evaluated to a result or an
// error, that measuring the cost does not change the result, and that compiling is
// cheap.
func FuzzExpression(f *testing.F) {
	for _, text := range truths {
		f.Add(text)
	}
	f.Add(`labels["zone"] == "a"`)
	f.Add(`[1, 2].map(annotations, annotations)[0] == 1`)
	for _, a := range attacks {
		f.Add(a.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var e *Expression
		var err error
		if used := allocated(func() { e, err = Compile(text) }); used > compiledMax {
			t.Fatalf("compiling %q allocates %d bytes", text, used)
		}
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
