// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// OpenTogether makes a gate open on the nodes of a group at once.
//
// +kubebuilder:validation:XValidation:rule="type(self.atLeast) == int || has(self.sizeLabelKey)",message="a percentage in atLeast requires sizeLabelKey, the label whose value is the number of nodes of the group; set sizeLabelKey, or use a number in atLeast",fieldPath=".sizeLabelKey"
// +kubebuilder:validation:XValidation:rule="type(self.atLeast) != int || !has(self.sizeLabelKey)",message="sizeLabelKey has no effect with a number in atLeast; remove it, or use a percentage in atLeast",fieldPath=".sizeLabelKey"
type OpenTogether struct {
	// labelKey specifies the node label whose value is the name of the group. The
	// nodes that the gate selects and that have the same value form a group. The gate
	// stays closed on a node that does not have the label, or has it with an empty
	// value.
	//
	// A kubelet can set most labels of its own Node. To prevent a node from joining
	// the group of others, use a label with the prefix
	// node-restriction.kubernetes.io/.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="labelKey must be a label key; write it as name or example.com/name"
	LabelKey string `json:"labelKey"`

	// atLeast specifies how many nodes of the group must be fit for the gate to open
	// on them. It is a number, or a percentage (rounded up, at least 1) of the size
	// that sizeLabelKey declares.
	//
	// A node is fit if the gate is open on it, if it is not a member of the gate, or
	// if the gate would open on it apart from the group. A node that the deadline
	// opened is fit once its signals hold. A node with a manual override is fit if
	// the override opens the gate, and not fit if it closes the gate.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 2 && self <= 5000 : self.matches('^(100|[1-9][0-9]?)%$')",message="atLeast must be a number of nodes from 2 to 5000, or a percentage from 1% to 100%"
	AtLeast intstr.IntOrString `json:"atLeast"`

	// sizeLabelKey specifies the node label whose value is the number of nodes of
	// the group. If nodes of a group declare different sizes, the largest applies.
	// While no node of the group declares a size from 1 to 5000, the gate stays closed.
	// Required when atLeast is a percentage.
	//
	// The number of nodes that exist is not used instead, because it is too low while
	// nodes of the group have not registered yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="sizeLabelKey must be a label key; write it as name or example.com/name"
	SizeLabelKey string `json:"sizeLabelKey,omitempty"`
}

// CloseTogether specifies whether a gate closes on a whole group.
//
// +kubebuilder:validation:Enum=Never;WhenIncomplete
type CloseTogether string

const (
	// CloseTogetherNever closes the gate only on nodes that have a reason of their
	// own. The other nodes of the group stay open.
	CloseTogetherNever CloseTogether = "Never"
	// CloseTogetherWhenIncomplete also closes the gate on the other nodes of the
	// group, within the budget, when fewer nodes than openTogether.atLeast have been
	// fit for timing.closeAfterSeconds.
	CloseTogetherWhenIncomplete CloseTogether = "WhenIncomplete"
)
