// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Deadline bounds how long a node may wait.
//
// +kubebuilder:validation:XValidation:rule="has(self.podMissingSeconds) || has(self.readySeconds)",message="a deadline needs a clock; set podMissingSeconds, readySeconds or both"
type Deadline struct {
	// podMissingSeconds is by when every required pod must be on the node, ready or
	// not: the deadline passes when one is missing then, or at any time after. Unset,
	// it does not pass for that.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	PodMissingSeconds *int32 `json:"podMissingSeconds,omitempty"`

	// readySeconds is how long the gate may stay closed, whatever it waits for. Unset,
	// it does not pass for that.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ReadySeconds *int32 `json:"readySeconds,omitempty"`

	// action is what happens when the deadline has passed. Open opens the gate, and
	// leaves it open until the node reboots or the signals have all held once, from
	// when on it is like any other. It does not open while the node is silent,
	// shutting down or being set up, nor while nodegate cannot observe what a signal
	// looks at; it does not wait for openAfterSeconds or minClosedSeconds.
	// +optional
	// +kubebuilder:default=KeepClosed
	Action DeadlineAction `json:"action,omitempty"`
}

// DeadlineAction is what happens when a deadline has passed.
//
// +kubebuilder:validation:Enum=KeepClosed;Open
type DeadlineAction string

const (
	// DeadlineKeepClosed keeps the gate closed and tells.
	DeadlineKeepClosed DeadlineAction = "KeepClosed"
	// DeadlineOpen opens the gate and tells.
	DeadlineOpen DeadlineAction = "Open"
)
