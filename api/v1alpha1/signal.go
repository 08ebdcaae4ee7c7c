// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is one named observation about a node. It has exactly one kind, and
// at any time it holds, does not hold yet, or is unknown. An unknown signal
// never opens and never closes a gate.
//
// +kubebuilder:validation:XValidation:rule="[has(self.daemonSet), has(self.daemonSets), has(self.pods), has(self.condition), has(self.label), has(self.annotation), has(self.csiDriver), has(self.resource), has(self.resourceSlices), has(self.expression), has(self.anyOf)].exists_one(set, set)",message="a signal has exactly one kind; set one of daemonSet, daemonSets, pods, condition, label, annotation, csiDriver, resource, resourceSlices, expression and anyOf"
type Signal struct {
	// name identifies the signal within its gate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="signal name must consist of lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	SignalSource `json:",inline"`

	// anyOf holds when one of its signals holds. It nests one level deep.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=8
	AnyOf []NamedSource `json:"anyOf,omitempty"`
}

// NamedSource is a signal inside anyOf.
//
// +kubebuilder:validation:XValidation:rule="[has(self.daemonSet), has(self.daemonSets), has(self.pods), has(self.condition), has(self.label), has(self.annotation), has(self.csiDriver), has(self.resource), has(self.resourceSlices), has(self.expression)].exists_one(set, set)",message="a signal inside anyOf has exactly one kind; set one of daemonSet, daemonSets, pods, condition, label, annotation, csiDriver, resource, resourceSlices and expression"
type NamedSource struct {
	// name identifies the signal within its anyOf.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="signal name must consist of lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	SignalSource `json:",inline"`
}

// SignalSource is the kind of a signal: exactly one field is set.
type SignalSource struct {
	// daemonSet holds when this DaemonSet has its ready pod on the node.
	// +optional
	DaemonSet *DaemonSetSignal `json:"daemonSet,omitempty"`

	// daemonSets holds when every selected DaemonSet that belongs on the node
	// has its ready pod there.
	// +optional
	DaemonSets *DaemonSetsSignal `json:"daemonSets,omitempty"`

	// pods holds when the matching pods on the node are ready. Mirror pods never
	// count.
	// +optional
	Pods *PodsSignal `json:"pods,omitempty"`

	// condition holds when a condition of the node matches.
	// +optional
	Condition *ConditionSignal `json:"condition,omitempty"`

	// label holds when the node carries the label.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.value) || !format.labelValue().validate(self.value).hasValue()",message="value must be a label value, at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; correct it",fieldPath=".value"
	Label *KeyValueSignal `json:"label,omitempty"`

	// annotation holds when the node carries the annotation.
	// +optional
	Annotation *KeyValueSignal `json:"annotation,omitempty"`

	// csiDriver holds when the node's CSINode lists the driver. A CSINode of a
	// former Node of the same name does not count.
	// +optional
	CSIDriver *CSIDriverSignal `json:"csiDriver,omitempty"`

	// resource holds when the node's allocatable has enough of the resource.
	// +optional
	Resource *ResourceSignal `json:"resource,omitempty"`

	// resourceSlices holds when every pool of devices that the DRA driver offers
	// on this node is complete: all its ResourceSlices of the newest generation
	// are there. Only those that name the node (spec.nodeName) and are owned by
	// its Node count.
	// +optional
	ResourceSlices *ResourceSlicesSignal `json:"resourceSlices,omitempty"`

	// expression holds when this CEL expression is true of the node; it must
	// return a bool. It sees labels, annotations and allocatable (maps; the values
	// of allocatable are quantities), conditions (each with type, status and
	// lastTransitionTime), taints (each with key, value, effect and timeAdded; not
	// the gate's own), nodeInfo and created. Keys of annotations and allocatable
	// are named literally. What it reads and is not there makes it unknown: write
	// labels[?"key"].orValue("") where a label may be missing. It knows no time of
	// day. An expression that cannot be compiled, or may cost too much, leaves the
	// gate not accepted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
}

// DaemonSetSignal names one DaemonSet.
type DaemonSetSignal struct {
	// namespace is the DaemonSet's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace"`

	// name is the DaemonSet's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="name must be the name of a DaemonSet (lower-case letters, digits, '-' and '.'); correct it"
	Name string `json:"name"`

	// minReadySeconds is how long the pod must have been ready, by its Ready
	// condition's last transition. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// DaemonSetsSignal selects DaemonSets.
type DaemonSetsSignal struct {
	// namespaces are searched for DaemonSets; at least one.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespaces []string `json:"namespaces"`

	// selector selects DaemonSets by their own labels; {} selects all of the
	// namespaces.
	// +required
	Selector LabelSelector `json:"selector"`

	// minReadySeconds is how long each pod must have been ready, by its Ready
	// condition's last transition. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// PodsSignal selects pods on the node. Mirror pods never count.
//
// +kubebuilder:validation:XValidation:rule="has(self.readyAnnotation) == (self.readyBy in ['Annotation', 'Either'])",message="readyAnnotation goes with readyBy Annotation or Either; set both, or remove readyAnnotation",fieldPath=".readyAnnotation"
type PodsSignal struct {
	// namespace is the pods' namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace"`

	// selector selects pods by their labels; it may not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="selector may not be empty, or every pod of the namespace would do; add matchLabels or matchExpressions"
	Selector LabelSelector `json:"selector"`

	// readyBy says what makes a pod ready: its Ready condition, an annotation,
	// or either. Whatever it says, a pod that is terminating or has finished is
	// not ready.
	// +optional
	// +kubebuilder:default=Condition
	ReadyBy ReadyBy `json:"readyBy,omitempty"`

	// readyAnnotation is the annotation that, with the value "true", makes a pod
	// ready. It goes with readyBy Annotation or Either. Whoever may patch the pod
	// may set it. After a reboot, and on a Node that was created again, one that
	// was there before does not count until it is taken away and set anew: a
	// program that sets it on its own pod takes it away when it starts.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="readyAnnotation must be an annotation key; write it as name or example.com/name"
	ReadyAnnotation string `json:"readyAnnotation,omitempty"`

	// minReadySeconds is how long a pod must have been ready, by its Ready
	// condition's last transition or, for an annotation, by when it was last
	// written. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// require says whether one matching pod on the node must be ready, or all
	// of them (and at least one).
	// +optional
	// +kubebuilder:default=Any
	Require Require `json:"require,omitempty"`
}

// ReadyBy says what makes a pod ready.
//
// +kubebuilder:validation:Enum=Condition;Annotation;Either
type ReadyBy string

const (
	// ReadyByCondition looks at the pod's Ready condition.
	ReadyByCondition ReadyBy = "Condition"
	// ReadyByAnnotation looks at the pod's readyAnnotation.
	ReadyByAnnotation ReadyBy = "Annotation"
	// ReadyByEither takes either.
	ReadyByEither ReadyBy = "Either"
)

// Require says how many matching pods must be ready.
//
// +kubebuilder:validation:Enum=Any;All
type Require string

const (
	// RequireAny needs one ready pod.
	RequireAny Require = "Any"
	// RequireAll needs every matching pod to be ready, and at least one.
	RequireAll Require = "All"
)

// ConditionSignal matches a condition of the node. Exactly one of type and
// typePattern, and exactly one of status and statusPattern, is set. Patterns
// are RE2 expressions anchored at both ends.
//
// +kubebuilder:validation:XValidation:rule="has(self.type) != has(self.typePattern)",message="a condition is named in one way; set exactly one of type and typePattern"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(self.statusPattern)",message="a condition's status is given in one way; set exactly one of status and statusPattern"
type ConditionSignal struct {
	// type is the condition's type.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type,omitempty"`

	// status is the condition's status.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Status string `json:"status,omitempty"`

	// typePattern is a regular expression (RE2) that the whole of the condition's
	// type must match. Of several conditions that it matches, one is enough.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="[''.matches(self), ''.matches('^(?:' + self + ')$')].size() == 2",message="typePattern must be a regular expression of the RE2 syntax; correct it"
	TypePattern string `json:"typePattern,omitempty"`

	// statusPattern is a regular expression (RE2) that the whole of the condition's
	// status must match.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="[''.matches(self), ''.matches('^(?:' + self + ')$')].size() == 2",message="statusPattern must be a regular expression of the RE2 syntax; correct it"
	StatusPattern string `json:"statusPattern,omitempty"`

	// forSeconds is how long the condition must have matched: how long ago its
	// status last changed. A condition that does not tell is unknown. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	ForSeconds int32 `json:"forSeconds,omitempty"`

	// maxHeartbeatAgeSeconds is how old the condition's last heartbeat may be. An
	// older one is unknown, whatever its status; 10 seconds are allowed for clocks
	// that differ. With it, the condition proves the current boot, by a heartbeat
	// of later than when the boot was first seen. A kubelet and the node problem
	// detector write heartbeats every 5 minutes where nothing changes: less than
	// 330 makes such a condition unknown for part of the time. Unset, any age will
	// do.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxHeartbeatAgeSeconds *int32 `json:"maxHeartbeatAgeSeconds,omitempty"`

	// whenMissing is what the signal says while the node has no such condition.
	// +optional
	// +kubebuilder:default=NotYet
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// WhenMissing is what a condition signal says while there is no such condition.
//
// +kubebuilder:validation:Enum=NotYet;Holds
type WhenMissing string

const (
	// MissingNotYet takes a missing condition as not holding.
	MissingNotYet WhenMissing = "NotYet"
	// MissingHolds takes a missing condition as holding.
	MissingHolds WhenMissing = "Holds"
)

// KeyValueSignal matches a label or an annotation of the node.
type KeyValueSignal struct {
	// key is the label's or annotation's key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="key must be a label or annotation key; write it as name or example.com/name"
	Key string `json:"key"`

	// value is the value it must have; when unset, any value will do.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`
}

// CSIDriverSignal names a CSI driver.
type CSIDriverSignal struct {
	// name is the driver's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="name must be the name of a CSI driver, such as ebs.csi.aws.com; correct it"
	Name string `json:"name"`

	// allocatable also asks for the driver's volume limit (allocatable.count) to
	// be reported. Before it is, the scheduler binds more volumes to the node than
	// can be attached. Defaults to false.
	// +optional
	Allocatable bool `json:"allocatable,omitempty"`
}

// ResourceSignal names a resource of the node's allocatable.
type ResourceSignal struct {
	// name is the resource's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="name must be the name of a resource, such as example.com/gpu; correct it"
	Name string `json:"name"`

	// atLeast is the quantity that must be allocatable. Defaults to 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : !self.matches('[eE][+-]?[0-9]{3}') && quantity(self).isGreaterThan(quantity('0'))",message="atLeast must be more than 0, with an exponent of two digits at most; correct it, or remove it for 1"
	AtLeast *resource.Quantity `json:"atLeast,omitempty"`
}

// ResourceSlicesSignal names a DRA driver.
type ResourceSlicesSignal struct {
	// driver is the driver's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="driver must be the name of a DRA driver, such as gpu.example.com; correct it"
	Driver string `json:"driver"`
}
