// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestAsSelector(t *testing.T) {
	linux := v1alpha1.LabelSelector{
		MatchLabels: map[string]string{"os": "linux"},
		MatchExpressions: []v1alpha1.LabelSelectorRequirement{
			{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			{Key: "virtual", Operator: metav1.LabelSelectorOpDoesNotExist},
		},
	}
	for _, test := range []struct {
		name     string
		selector v1alpha1.LabelSelector
		labels   labels.Set
		want     bool
	}{
		{"nothing is asked of a node without labels", v1alpha1.LabelSelector{}, nil, true},
		{"all requirements are met", linux, labels.Set{"os": "linux", "pool": "b"}, true},
		{"the label has another value", linux, labels.Set{"os": "windows", "pool": "b"}, false},
		{"an expression is not met", linux, labels.Set{"os": "linux", "pool": "c"}, false},
		{"a forbidden label is there", linux, labels.Set{"os": "linux", "pool": "b", "virtual": ""}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			selector, err := test.selector.AsSelector()
			if err != nil {
				t.Fatal(err)
			}
			if got := selector.Matches(test.labels); got != test.want {
				t.Errorf("%v matches %v: got %t, want %t", selector, test.labels, got, test.want)
			}
		})
	}
}

func TestAsSelectorRefusesAnUnknownOperator(t *testing.T) {
	selector := v1alpha1.LabelSelector{
		MatchExpressions: []v1alpha1.LabelSelectorRequirement{{Key: "a", Operator: "Gt"}},
	}
	if _, err := selector.AsSelector(); err == nil {
		t.Error("want an error")
	}
}

func TestDeepCopyOfASelectorIsIndependent(t *testing.T) {
	build := func() *v1alpha1.LabelSelector {
		return &v1alpha1.LabelSelector{
			MatchLabels: map[string]string{"a": "b"},
			MatchExpressions: []v1alpha1.LabelSelectorRequirement{
				{Key: "c", Operator: metav1.LabelSelectorOpIn, Values: []string{"d"}},
			},
		}
	}
	original := build()
	changed := original.DeepCopy()
	if !reflect.DeepEqual(changed, original) {
		t.Errorf("got %+v, want a copy of %+v", changed, original)
	}
	changed.MatchLabels["a"] = "x"
	changed.MatchExpressions[0].Key = "x"
	changed.MatchExpressions[0].Values[0] = "x"
	if !reflect.DeepEqual(original, build()) {
		t.Errorf("changing the copy changed the original to %+v", original)
	}
}
