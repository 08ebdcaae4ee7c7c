// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"testing"

	"github.com/nodegate/nodegate/internal/crd"
)

// fuzz searches for inputs for which a conversion panics, or prints a gate that the API
// server rejects.
func fuzz(f *testing.F, tool string, run func(Source) *Result) {
	for _, source := range inputs(f, tool) {
		f.Add(source.Data)
	}
	// Compile the API's rules now, because an input that takes 10 seconds counts as hanging.
	if _, err := crd.Decode([]byte("{}")); err == nil {
		f.Fatal("an empty NodeGate is valid")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := run(Source{Name: "fuzz", Data: data})
		if r.Errors() == 0 && len(r.Gates) == 0 {
			t.Error("no gates and no errors")
		}
		checkGates(t, r)
	})
}

func FuzzTainterTOML(f *testing.F) {
	fuzz(f, "tainter", func(s Source) *Result { return Tainter(s, TainterOptions{Format: "toml"}) })
}

func FuzzTainterYAML(f *testing.F) {
	fuzz(f, "tainter", func(s Source) *Result { return Tainter(s, TainterOptions{Format: "yaml"}) })
}

func FuzzIstio(f *testing.F)   { fuzz(f, "istio", Istio) }
func FuzzNidhogg(f *testing.F) { fuzz(f, "nidhogg", Nidhogg) }

func FuzzNodeReadinessRules(f *testing.F) { fuzz(f, "node-readiness-controller", NodeReadinessRules) }

func FuzzNodeTaintsHandler(f *testing.F) { fuzz(f, "nodetaintshandler", tools["nodetaintshandler"]) }
