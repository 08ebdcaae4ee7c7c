// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeGateStatus is the most recently observed state of a gate.
type NodeGateStatus struct {
	// observedGeneration is the generation of the spec that this status reflects.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the gate's conditions: Ready, Accepted, Overdue, Throttled and
	// Contended. docs/runbooks describes their reasons and how to resolve them.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// plainOptOut is true if the label nodegate.dev/opt-out, which kubelets can
	// set, excludes nodes from the gate because the administrator allows it
	// (--allow-plain-opt-out).
	// +optional
	PlainOptOut bool `json:"plainOptOut,omitempty"`

	// nodes counts the gate's nodes by state. For a gate in DryRun, it contains the
	// counts that would result if the gate acted.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`

	// waiting lists the nodes that have been waiting longest, longest first. For a
	// gate in DryRun, it lists the nodes that would be waiting.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Waiting []WaitingNode `json:"waiting,omitempty"`

	// groups counts the groups of a gate with openTogether. Unset for other gates.
	// +optional
	Groups *GroupCounts `json:"groups,omitempty"`

	// nonMembers lists the selected nodes that are not members of the gate, by
	// reason. For a gate in DryRun, it lists the nodes that would not be members.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=16
	NonMembers []NonMembers `json:"nonMembers,omitempty"`
}

// NodeCounts counts a gate's nodes by state.
type NodeCounts struct {
	// selected is the number of nodes that nodeSelector selects.
	Selected int32 `json:"selected"`
	// open is the number of selected nodes that are members of the gate and on
	// which the gate is open. A selected node that is neither open nor closed is
	// not a member; see nonMembers.
	Open int32 `json:"open"`
	// closed is the number of selected nodes that are members of the gate and on
	// which the gate is closed.
	Closed int32 `json:"closed"`
	// overdue is the number of closed nodes that have passed the deadline.
	Overdue int32 `json:"overdue"`
	// throttled is the number of nodes that are waiting for budget, either to be
	// closed or to be checked for idleness. The condition Throttled names some of
	// them.
	Throttled int32 `json:"throttled"`
	// overridden is the number of nodes on which a user overrides the gate for a
	// limited time with the annotation override.nodegate.dev/NAME. The other counts
	// include the effect of the override.
	// +optional
	Overridden int32 `json:"overridden"`
	// nonMembers is the number of selected nodes that are not members of the gate.
	// The gate neither closes nor opens on these nodes. status.nonMembers lists the
	// reasons.
	// +optional
	NonMembers int32 `json:"nonMembers"`
}

// GroupCounts counts the groups of a gate with openTogether.
type GroupCounts struct {
	// complete is the number of groups in which as many nodes are fit as
	// openTogether.atLeast requires.
	Complete int32 `json:"complete"`
	// incomplete is the number of other groups that have a node. status.waiting names
	// the nodes that wait for them.
	Incomplete int32 `json:"incomplete"`
}

// NonMembers describes the nodes that a gate selects and that are not its
// members for one reason.
type NonMembers struct {
	// reason is the reason why the nodes are not members.
	// +kubebuilder:validation:MaxLength=64
	Reason NonMemberReason `json:"reason"`
	// message is a human-readable explanation of the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// count is the number of nodes that are not members for this reason.
	Count int32 `json:"count"`
	// nodes lists the names of the first of these nodes, in alphabetical order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
}

// WaitingNode is a node on which the gate is closed.
type WaitingNode struct {
	// node is the name of the node.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// since is the time at which the gate closed.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// signal is the first signal, in the order of the gate's spec, that the node
	// waits for. For a closeWhen gate, it is the first signal that is unknown or, if
	// all signals hold, the first signal. Empty if a signal does not hold.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Signal string `json:"signal,omitempty"`
	// reason is the reason for the signal's state, or, without a signal, what keeps
	// the gate closed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message is a human-readable explanation of the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
