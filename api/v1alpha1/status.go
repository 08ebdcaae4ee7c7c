// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeGateStatus is what nodegate last observed of a gate.
type NodeGateStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Accepted, Overdue, Throttled and Contended. What their
	// reasons mean, and what to do, is in docs/runbooks.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the gate's nodes; of a gate in DryRun, as they would be.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`

	// waiting lists the nodes that have waited longest, longest first; of a gate
	// in DryRun, those that would wait.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Waiting []WaitingNode `json:"waiting,omitempty"`
}

// NodeCounts counts a gate's nodes.
type NodeCounts struct {
	// selected is how many nodes the nodeSelector selects.
	Selected int32 `json:"selected"`
	// open is how many of them are members with the gate open. A selected node that
	// is neither open nor closed is outside of the gate (existingNodes).
	Open int32 `json:"open"`
	// closed is how many of them are members with the gate closed.
	Closed int32 `json:"closed"`
	// overdue is how many of the closed ones have passed the deadline.
	Overdue int32 `json:"overdue"`
	// throttled is how many are to be closed, or to be looked at for that, and
	// wait for budget. The condition Throttled names some.
	Throttled int32 `json:"throttled"`
	// overridden is on how many nodes a person has the gate open or closed for a
	// time, by the annotation override.nodegate.dev/NAME. The other counts are of
	// what it comes to.
	// +optional
	Overridden int32 `json:"overridden"`
}

// WaitingNode is a node on which the gate is closed.
type WaitingNode struct {
	// node is the node's name.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// since is when the gate was closed.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// signal is the first signal, in the gate's order, that the node waits for;
	// of a closeWhen gate, the first that keeps it closed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Signal string `json:"signal,omitempty"`
	// reason is why that signal does not hold; of a closeWhen gate, why it does.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message says it in words.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
