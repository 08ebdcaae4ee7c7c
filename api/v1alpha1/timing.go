// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Timing specifies how long a gate waits before it opens or closes, in seconds.
type Timing struct {
	// minClosedSeconds specifies how long the gate stays closed at a minimum after
	// it closes, even if its signals would open it. For a new node, the time starts
	// at the Node's creation. After a reboot, it starts when the controller
	// observes the new boot. The minimum does not apply if the gate closed because
	// the node became unreachable or announced its shutdown, and the node then
	// returned without a reboot. It does not apply to a node that carried the taint
	// before it became a member of the gate. Must be 0 when reopen is Manual.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinClosedSeconds int32 `json:"minClosedSeconds,omitempty"`

	// openAfterSeconds specifies how long all signals must have held without
	// interruption before a closed gate opens (soak time). For a closeWhen gate, it
	// specifies how long at least one signal must not have held. The wait runs
	// concurrently with minClosedSeconds. After a reboot, it starts with the new boot
	// at the earliest. It does not apply if the gate closed because the node became
	// unreachable or announced its shutdown, and the node then returned without a
	// reboot. Must be 0 when reopen is Manual.
	//
	// For labels, annotations, resources, CSI drivers, resource slices, objects and
	// expressions, the API does not report when they last changed. For these
	// signals, the wait starts again if the controller is replaced, if a signal of
	// the gate is not observed for some time, or if the node becomes unreachable.
	// If a gate has only other signals, the wait continues if the API reports that
	// they held throughout.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	OpenAfterSeconds int32 `json:"openAfterSeconds,omitempty"`

	// closeAfterSeconds specifies how long a signal must not have held before an
	// OnRegression gate closes (damping). It also specifies how long a group must
	// have been incomplete before closeTogether closes the gate on the rest of it.
	// May only be set with openWhen: a closeWhen gate closes immediately.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CloseAfterSeconds *int32 `json:"closeAfterSeconds,omitempty"`

	// rolloutGraceSeconds specifies how long a daemon still counts as ready for an
	// OnRegression gate while its own rollout replaces it. If set to 0, the gate
	// closes as soon as the daemon's pod starts to terminate.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RolloutGraceSeconds *int32 `json:"rolloutGraceSeconds,omitempty"`
}
