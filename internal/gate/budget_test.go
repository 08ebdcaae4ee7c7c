// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMaxReclosed(t *testing.T) {
	for _, test := range []struct {
		budget *intstr.IntOrString
		want   [11]int // for 0 to 10 nodes
	}{
		{new(intstr.FromInt32(0)), [11]int{}},
		{new(intstr.FromString("0%")), [11]int{}},
		{new(intstr.FromString("1%")), [11]int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{new(intstr.FromString("20%")), [11]int{0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}},
		{nil, [11]int{0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}},
		{new(intstr.FromString("100%")), [11]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{new(intstr.FromInt32(3)), [11]int{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
		{new(intstr.FromString("many")), [11]int{}},
	} {
		for nodes, want := range test.want {
			if got := MaxReclosed(test.budget, nodes); got != want {
				t.Errorf("MaxReclosed(%v, %d) = %d, want %d", test.budget, nodes, got, want)
			}
		}
	}
}
