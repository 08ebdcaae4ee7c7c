// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Deadline limits how long a node may wait for a gate to open.
//
// +kubebuilder:validation:XValidation:rule="has(self.podMissingSeconds) || has(self.readySeconds)",message="set at least one of podMissingSeconds and readySeconds"
type Deadline struct {
	// podMissingSeconds specifies the time after which every required pod must
	// exist on the node, ready or not. The deadline passes if a required pod is
	// missing at that time or at any later time. If unset, missing pods do not
	// cause the deadline to pass.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	PodMissingSeconds *int32 `json:"podMissingSeconds,omitempty"`

	// readySeconds specifies how long the gate may stay closed, regardless of what
	// it waits for. If unset, the time that the gate has been closed does not by
	// itself cause the deadline to pass.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ReadySeconds *int32 `json:"readySeconds,omitempty"`

	// action specifies what happens when the deadline has passed. Open opens the
	// gate and keeps it open until the node reboots or all signals have held once;
	// after that, the gate behaves as usual. Open does not take effect while the
	// node is unreachable, shutting down or being set up, or while nodegate cannot
	// observe what a signal depends on. It does not wait for openAfterSeconds or
	// minClosedSeconds.
	// +optional
	// +kubebuilder:default=KeepClosed
	Action DeadlineAction `json:"action,omitempty"`
}

// DeadlineAction specifies what happens when a deadline has passed.
//
// +kubebuilder:validation:Enum=KeepClosed;Open
type DeadlineAction string

const (
	// DeadlineKeepClosed keeps the gate closed and reports the node.
	DeadlineKeepClosed DeadlineAction = "KeepClosed"
	// DeadlineOpen opens the gate and reports the node.
	DeadlineOpen DeadlineAction = "Open"
)
