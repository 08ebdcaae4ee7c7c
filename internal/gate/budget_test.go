// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestMaxReclosed(t *testing.T) {
	for _, test := range []struct {
		budget *intstr.IntOrString
		want   [11]int // for 0 to 10 nodes
	}{
		{ptr.To(intstr.FromInt32(0)), [11]int{}},
		{ptr.To(intstr.FromString("0%")), [11]int{}},
		{ptr.To(intstr.FromString("1%")), [11]int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{ptr.To(intstr.FromString("20%")), [11]int{0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}},
		{nil, [11]int{0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}},
		{ptr.To(intstr.FromString("100%")), [11]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{ptr.To(intstr.FromInt32(3)), [11]int{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
		{ptr.To(intstr.FromString("many")), [11]int{}},
	} {
		for nodes, want := range test.want {
			if got := MaxReclosed(test.budget, nodes); got != want {
				t.Errorf("MaxReclosed(%v, %d) = %d, want %d", test.budget, nodes, got, want)
			}
		}
	}
}
