// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// of returns a gate whose signals are expressions, one of them in anyOf.
func of(texts ...string) *v1alpha1.NodeGate {
	ng := &v1alpha1.NodeGate{}
	ng.Name, ng.Spec.Taint.Key = "gate", "example.com/a"
	either := v1alpha1.Signal{Name: "any"}
	for i, text := range texts {
		if i == 0 {
			either.AnyOf = append(either.AnyOf, v1alpha1.NamedSource{Name: "a", SignalSource: expressed(text)})
			continue
		}
		ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "s", SignalSource: expressed(text)})
	}
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, either)
	return ng
}

func TestExpressionsOfAGate(t *testing.T) {
	ng := of("b", "a", "b", "c")
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "other", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "l"}}})
	if got := ExpressionsOf(&ng.Spec).Nodes; !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("openWhen: %q", got)
	}
	ng.Spec.CloseWhen, ng.Spec.OpenWhen = ng.Spec.OpenWhen, nil
	if got := ExpressionsOf(&ng.Spec).Nodes; !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("closeWhen: %q", got)
	}
}

// The total length of a gate's expressions is limited. Identical expressions count
// once.
func TestExpressionsOfAGateAreBounded(t *testing.T) {
	long := func(c string) string { return `labels.a == "` + c + `"` + strings.Repeat(" ", 1024-15) }
	at := []string{long("a"), long("b"), long("c"), long("d"), long("a")}
	if _, err := Compile(of(at...), v1alpha1.SourceCRD); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	g, err := Compile(of(append(at, "true")...), v1alpha1.SourceCRD)
	const want = "compiling expressions: they have 4100 bytes in total, but a gate may have at most 4096; shorten them, or split the gate"
	if err == nil || err.Error() != want || g.Signals != nil {
		t.Errorf("beyond: %v", err)
	}
}

// An uncompiled gate has everything that is needed to keep nodes closed, and selects no
// node.
func TestUncompiled(t *testing.T) {
	ng := of("true")
	g := Uncompiled(ng, v1alpha1.SourceCRD)
	if g.Name != "gate" || g.Taint.Key != "example.com/a" || !g.Broken || g.Selector.Matches(labels.Set{}) || len(g.Signals) != 0 {
		t.Errorf("%+v", g)
	}
}
