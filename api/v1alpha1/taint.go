// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Taint is a taint without its time.
type Taint struct {
	// key is the taint's key. The administrator lists the keys that nodegate
	// may use. Keys under node.kubernetes.io/ are refused but for out-of-service,
	// which needs closeWhen and VolumeDetach in acknowledge: such a gate closes
	// only on a node that is silent (Ready is Unknown), for a minute or with its
	// cloud's shutdown taint, and opens as soon as the node speaks, whatever the
	// signals say.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="taint key must be a qualified name; write it as name or example.com/name"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('node.kubernetes.io/') || self == 'node.kubernetes.io/out-of-service'",message="taint keys under node.kubernetes.io/ belong to Kubernetes; choose another key"
	Key string `json:"key"`

	// value is the taint's value. Empty by default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="taint value must be empty or consist of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	Value string `json:"value,omitempty"`

	// effect is what the taint does to pods that do not tolerate it: NoSchedule
	// keeps new ones away, PreferNoSchedule does where they have another place, and
	// NoExecute evicts running ones, too, and needs PodEviction in acknowledge.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// Taints are all that the gate may put on a node.
func (s *NodeGateSpec) Taints() []Taint {
	if s.RecloseTaint == nil {
		return []Taint{s.Taint}
	}
	return []Taint{s.Taint, *s.RecloseTaint}
}

// Acknowledgement names a danger that the author of a gate accepts.
//
// +kubebuilder:validation:Enum=PodEviction;VolumeDetach
type Acknowledgement string

const (
	// AcknowledgePodEviction accepts that a NoExecute taint evicts pods without
	// regard to disruption budgets.
	AcknowledgePodEviction Acknowledgement = "PodEviction"
	// AcknowledgeVolumeDetach accepts that out-of-service detaches volumes.
	AcknowledgeVolumeDetach Acknowledgement = "VolumeDetach"
)
