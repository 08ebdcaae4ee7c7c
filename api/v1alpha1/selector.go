// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelSelector selects objects by their labels. An object must meet all
// requirements. A selector without requirements selects everything. It has the
// same semantics as metav1.LabelSelector, but bounds its size, so that the
// validation of its parts stays within the cost limits of the API server.
type LabelSelector struct {
	// matchLabels specifies labels that the object must carry.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="matchLabels has a key that is not a label key; write it as name or example.com/name"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions specifies further requirements on the object's labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// EqualitySelector selects objects by the values of their labels. An object must carry
// all of the labels.
//
// ---
// It has no matchExpressions: validating them once more would exceed the cost limit of
// API servers before 1.36.
type EqualitySelector struct {
	// matchLabels specifies labels that the object must carry. Must not be empty.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="matchLabels has a key that is not a label key; write it as name or example.com/name"
	MatchLabels map[string]LabelValue `json:"matchLabels"`
}

// LabelSelectorRequirement is a requirement on one label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="operators In and NotIn need at least one value, Exists and DoesNotExist take none; correct values",fieldPath=".values"
type LabelSelectorRequirement struct {
	// key is the label key that the requirement applies to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="key is not a label key; write it as name or example.com/name"
	Key string `json:"key"`

	// operator specifies how the label relates to values. In requires the label to
	// have one of the values, NotIn requires it to have none of them. Exists
	// requires the label to exist, DoesNotExist requires it not to exist. An object
	// without the label matches NotIn.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values specifies the values for the operators In and NotIn. Must be empty for
	// Exists and DoesNotExist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// LabelValue is the value of a label.
//
// ---
// There are two cheap rules because a single regular expression would exceed the
// cost limit of the API server.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches(r'^[\\w.-]*$')",message="a label value must contain only letters, digits, '-', '_' and '.'; correct it"
// +kubebuilder:validation:XValidation:rule="!(self.startsWith('-') || self.startsWith('_') || self.startsWith('.') || self.endsWith('-') || self.endsWith('_') || self.endsWith('.'))",message="a label value must begin and end with a letter or digit; correct it"
type LabelValue = string

// AsSelector returns the selector as a labels.Selector, or an error if it is
// not valid.
func (s LabelSelector) AsSelector() (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(s.AsMeta())
}

// AsSelector returns the selector as a labels.Selector, or an error if it is
// not valid.
func (s EqualitySelector) AsSelector() (labels.Selector, error) {
	return labels.ValidatedSelectorFromSet(s.MatchLabels)
}

// AsMeta returns the selector as a metav1.LabelSelector.
func (s LabelSelector) AsMeta() *metav1.LabelSelector {
	meta := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		meta.MatchExpressions = append(meta.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return meta
}

// DeepCopyInto copies the selector into out. It is written manually because
// controller-gen cannot copy a map whose values are of an alias type.
func (s *LabelSelector) DeepCopyInto(out *LabelSelector) {
	out.MatchLabels = maps.Clone(s.MatchLabels)
	out.MatchExpressions = slices.Clone(s.MatchExpressions)
	for i := range out.MatchExpressions {
		out.MatchExpressions[i].Values = slices.Clone(out.MatchExpressions[i].Values)
	}
}

// DeepCopyInto copies the selector into out.
func (s *EqualitySelector) DeepCopyInto(out *EqualitySelector) {
	out.MatchLabels = maps.Clone(s.MatchLabels)
}

// DeepCopy returns a copy of the selector.
func (s *EqualitySelector) DeepCopy() *EqualitySelector {
	if s == nil {
		return nil
	}
	out := new(EqualitySelector)
	s.DeepCopyInto(out)
	return out
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
