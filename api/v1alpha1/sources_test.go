// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"slices"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestSources(t *testing.T) {
	source := func(expression string) v1alpha1.SignalSource { return v1alpha1.SignalSource{Expression: expression} }
	first := []v1alpha1.Signal{
		{Name: "a", SignalSource: source("1")},
		{Name: "b", AnyOf: []v1alpha1.NamedSource{{Name: "x", SignalSource: source("2")}, {Name: "y", SignalSource: source("3")}}},
	}
	second := []v1alpha1.Signal{{Name: "c", SignalSource: source("4")}}
	want := []string{"a", "1", "b", "", "b", "x", "2", "b", "y", "3", "c", "4"}
	for most, length := range map[int]int{1: 2, 3: 7, 5: 12} {
		var got []string
		for names, s := range v1alpha1.Sources(first, second) {
			got = append(append(got, names...), s.Expression)
			if most--; most == 0 {
				break
			}
		}
		if !slices.Equal(got, want[:length]) {
			t.Errorf("%q, want %q", got, want[:length])
		}
	}
	for _, s := range v1alpha1.Sources(first) {
		s.Expression = "changed"
	}
	if first[1].AnyOf[1].Expression != "changed" {
		t.Error("the sources are copies")
	}
}
