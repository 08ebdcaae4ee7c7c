// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// BenchmarkConvertTainter10000 converts ten thousand different matchers and prints the
// gates.
func BenchmarkConvertTainter10000(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "[[reconciler.matchers]]\n[reconciler.matchers.taint]\neffect = \"NoExecute\"\nkey = \"example.com/key-%d\"\nvalue = \"v%d\"\n"+
			"[[reconciler.matchers.conditions]]\ntype = \"Card%d\"\nstatus = \"Kaput|Ruined%d\"\n"+
			"[[reconciler.matchers.conditions]]\ntype = \"^Link[%d]$\"\nstatus = \"severed\"\n", i, i, i, i, i%10)
	}
	source := Source{Name: "tainter.toml", Data: []byte(text.String())}
	Tainter(Source{Name: "x.toml", Data: source.Data[:200]}, TainterOptions{}) // compiles the API's rules
	for b.Loop() {
		r := Tainter(source, TainterOptions{})
		if len(r.Gates) != 10_000 {
			b.Fatal(findingsText(r))
		}
		if err := r.WriteYAML(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
