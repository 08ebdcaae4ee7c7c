// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// Budget limits how many nodes may be closed at a time for reasons other than
// node creation, an observed reboot, unreachability and announced shutdown.
type Budget struct {
	// maxReclosed specifies how many of the gate's nodes in one zone may be closed
	// at a time under this budget. It is a number or a percentage, which is rounded
	// up: at least 1, except for 0%, which allows none. The label
	// topology.kubernetes.io/zone specifies a node's zone. Nodes without the label
	// form one zone.
	// +optional
	// +kubebuilder:default="20%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxReclosed must be a number of nodes from 0 to 1000000, or a percentage from 0% to 100%"
	MaxReclosed *intstr.IntOrString `json:"maxReclosed,omitempty"`
}
