// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelSelector selects objects by their labels: all of its requirements must
// be met, and one without requirements selects everything. It is read like
// metav1.LabelSelector and differs from it by its bounds, without which the API
// server could not check its parts at a cost that it allows.
type LabelSelector struct {
	// matchLabels are labels that the object must carry.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="matchLabels has a key that is not a label key; write it as name or example.com/name"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement asks something of one label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="operators In and NotIn need at least one value, Exists and DoesNotExist take none; correct values",fieldPath=".values"
type LabelSelectorRequirement struct {
	// key is the label's key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="key is not a label key; write it as name or example.com/name"
	Key string `json:"key"`

	// operator relates the label to the values: In and NotIn compare with them,
	// Exists and DoesNotExist take none. A label that is missing is NotIn any.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are what In and NotIn compare with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// LabelValue is the value of a label.
//
// ---
// Two cheap rules: one regular expression for all would cost more than the API
// server allows.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches(r'^[\\w.-]*$')",message="a label value may hold letters, digits, '-', '_' and '.' only; correct it"
// +kubebuilder:validation:XValidation:rule="!(self.startsWith('-') || self.startsWith('_') || self.startsWith('.') || self.endsWith('-') || self.endsWith('_') || self.endsWith('.'))",message="a label value must begin and end with a letter or digit; correct it"
type LabelValue = string

// AsSelector compiles the selector.
func (s LabelSelector) AsSelector() (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(s.AsMeta())
}

// AsMeta returns the selector in the form that other clients take.
func (s LabelSelector) AsMeta() *metav1.LabelSelector {
	meta := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		meta.MatchExpressions = append(meta.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return meta
}

// DeepCopyInto copies the selector. It is written by hand because controller-gen
// cannot copy a map whose values are of an alias type.
func (s *LabelSelector) DeepCopyInto(out *LabelSelector) {
	out.MatchLabels = maps.Clone(s.MatchLabels)
	out.MatchExpressions = slices.Clone(s.MatchExpressions)
	for i := range out.MatchExpressions {
		out.MatchExpressions[i].Values = slices.Clone(out.MatchExpressions[i].Values)
	}
}

// DeepCopy returns a copy of the selector.
func (s *LabelSelector) DeepCopy() *LabelSelector {
	if s == nil {
		return nil
	}
	out := new(LabelSelector)
	s.DeepCopyInto(out)
	return out
}
