// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Taint is a taint without timeAdded.
type Taint struct {
	// key is the taint key. The administrator must allow the key. Keys under
	// node.kubernetes.io/ are rejected, except for
	// node.kubernetes.io/out-of-service. Keys that mark nodes as being set up or shut
	// down, such as karpenter.sh/unregistered, are rejected as well.
	//
	// The key node.kubernetes.io/out-of-service requires closeWhen, and
	// VolumeDetach in acknowledge. A gate with this key closes only on a node that
	// is unreachable (Ready is Unknown) and has been so for at least one minute or
	// carries its cloud's shutdown taint. It opens as soon as the node is reporting
	// again, regardless of its signals.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="taint key must be a qualified name; write it as name or example.com/name"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('node.kubernetes.io/') || self == 'node.kubernetes.io/out-of-service'",message="taint keys under node.kubernetes.io/ belong to Kubernetes; choose another key"
	// +kubebuilder:validation:XValidation:rule="!(self in ['node.cloudprovider.kubernetes.io/uninitialized', 'node.cluster.x-k8s.io/uninitialized', 'karpenter.sh/unregistered', 'node.cloudprovider.kubernetes.io/shutdown'])",message="taint key must not mark nodes that are being set up or shut down, which affects every gate; choose another key"
	Key string `json:"key"`

	// value is the taint value. Defaults to empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="taint value must be empty or consist of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	Value string `json:"value,omitempty"`

	// effect specifies the effect of the taint on pods that do not tolerate it.
	// NoSchedule prevents new pods from being scheduled to the node.
	// PreferNoSchedule makes the scheduler avoid the node if another node is
	// available. NoExecute also evicts running pods, and requires PodEviction in
	// acknowledge.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// TaintOf returns a node's taint without timeAdded.
func TaintOf(t corev1.Taint) Taint { return Taint{Key: t.Key, Value: t.Value, Effect: t.Effect} }

// Core returns the taint as a node has it, without timeAdded.
func (t Taint) Core() corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// SetupTaintKeys returns the keys of the taints that a node carries until its cloud
// provider, Cluster API or Karpenter has set it up: some of its labels and taints have
// not been added yet.
func SetupTaintKeys() []string {
	return []string{"node.cloudprovider.kubernetes.io/uninitialized", "node.cluster.x-k8s.io/uninitialized", "karpenter.sh/unregistered"}
}

// AffectsAllGates reports whether a taint with this key affects every gate on a node,
// because the node is being set up, or its machine is shut down. A gate cannot have such a
// taint. A rule of Taint contains the same keys.
func AffectsAllGates(key string) bool {
	return key == TaintCloudShutdown || slices.Contains(SetupTaintKeys(), key)
}

// Taints returns all taints that the gate may add to a node.
func (s *NodeGateSpec) Taints() []Taint {
	if s.RecloseTaint == nil {
		return []Taint{s.Taint}
	}
	return []Taint{s.Taint, *s.RecloseTaint}
}

// Acknowledgement is a risk that the author of a gate accepts.
//
// +kubebuilder:validation:Enum=PodEviction;VolumeDetach
type Acknowledgement string

const (
	// AcknowledgePodEviction accepts that a NoExecute taint evicts pods regardless
	// of PodDisruptionBudgets, and that bypassedPods: Evict evicts pods.
	AcknowledgePodEviction Acknowledgement = "PodEviction"
	// AcknowledgeVolumeDetach accepts that the taint
	// node.kubernetes.io/out-of-service detaches volumes.
	AcknowledgeVolumeDetach Acknowledgement = "VolumeDetach"
)
