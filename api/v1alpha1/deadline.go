// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Deadline limits how long a node may wait for a gate to open.
//
// +kubebuilder:validation:XValidation:rule="has(self.podMissingSeconds) || has(self.readySeconds)",message="set at least one of podMissingSeconds and readySeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.condition) || self.condition != 'Publish' || !has(self.action) || self.action != 'Open'",message="condition: Publish must not be set with action: Open, which opens the gate instead; remove one of them",fieldPath=".condition"
type Deadline struct {
	// podMissingSeconds specifies the time after which every required pod must
	// exist on the node, ready or not. The deadline passes if a required pod is
	// missing at that time or at any later time. If unset, missing pods do not
	// cause the deadline to pass.
	//
	// Requires a signal of kind daemonSet, daemonSets, pods or completed, or anyOf with
	// only these kinds. A pod is missing for anyOf if it is missing for every
	// alternative.
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
	// gate and keeps it open until all signals have held once or, unless
	// reclosePolicy is Never, the node reboots; after that, the gate behaves as usual. Open does not take effect while the
	// node is unreachable, shutting down or being set up, or while nodegate cannot
	// observe what a signal depends on. It does not wait for openAfterSeconds or
	// minClosedSeconds.
	// +optional
	// +kubebuilder:default=KeepClosed
	Action DeadlineAction `json:"action,omitempty"`

	// condition specifies whether the controller publishes a Node condition while the
	// deadline has passed and the gate is still closed, so that a remediation
	// controller can replace the node. The type of the condition is
	// deadline.nodegate.dev/<name of the gate>, its status is True and its reason is
	// DeadlinePassed. The controller removes the condition when the gate opens, the
	// node reboots, the deadline is extended, or the gate is paused, deleted or no
	// longer selects the node.
	//
	// At most as many of the gate's nodes in one zone have the condition at a time as
	// budget.maxReclosed allows; the condition Overdue reports the nodes that wait.
	// Publish does not take effect while the node is unreachable, shutting down or
	// being set up, or while nodegate cannot observe what a signal depends on, and not
	// on a node that waits only for its group (openTogether). It requires the
	// permission to patch nodes/status, which 'nodegate manifests' grants with
	// --node-conditions, and action: KeepClosed.
	// +optional
	// +kubebuilder:default=None
	Condition DeadlineCondition `json:"condition,omitempty"`
}

// DeadlineCondition specifies whether a Node condition reports that a deadline has
// passed.
//
// +kubebuilder:validation:Enum=None;Publish
type DeadlineCondition string

const (
	// DeadlineConditionNone publishes no condition.
	DeadlineConditionNone DeadlineCondition = "None"
	// DeadlineConditionPublish publishes the condition on overdue nodes.
	DeadlineConditionPublish DeadlineCondition = "Publish"
)

// Publishes reports whether the deadline is published as a Node condition.
func (d *Deadline) Publishes() bool { return d != nil && d.Condition == DeadlineConditionPublish }

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
