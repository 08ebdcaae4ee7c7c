// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Signal is one named observation about a node. It has exactly one kind. At any
// time, a signal holds, does not hold yet, or is unknown. An unknown signal
// never opens and never closes a gate.
//
// +kubebuilder:validation:XValidation:rule="[has(self.daemonSet), has(self.daemonSets), has(self.pods), has(self.completed), has(self.condition), has(self.label), has(self.annotation), has(self.csiDriver), has(self.resource), has(self.resourceSlices), has(self.object), has(self.expression), has(self.anyOf)].exists_one(set, set)",message="a signal has exactly one kind; set one of daemonSet, daemonSets, pods, completed, condition, label, annotation, csiDriver, resource, resourceSlices, object, expression and anyOf"
type Signal struct {
	// name is the name of the signal. Must be unique within the gate's list of
	// signals.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="signal name must consist of lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	SignalSource `json:",inline"`

	// anyOf holds when at least one of its signals holds. It cannot be nested within
	// another anyOf.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=8
	AnyOf []NamedSource `json:"anyOf,omitempty"`
}

// NamedSource is a signal within anyOf.
//
// +kubebuilder:validation:XValidation:rule="[has(self.daemonSet), has(self.daemonSets), has(self.pods), has(self.completed), has(self.condition), has(self.label), has(self.annotation), has(self.csiDriver), has(self.resource), has(self.resourceSlices), has(self.object), has(self.expression)].exists_one(set, set)",message="a signal inside anyOf has exactly one kind; set one of daemonSet, daemonSets, pods, completed, condition, label, annotation, csiDriver, resource, resourceSlices, object and expression"
type NamedSource struct {
	// name is the name of the signal. Must be unique within its anyOf.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="signal name must consist of lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name"`

	SignalSource `json:",inline"`
}

// SignalSource is the kind of a signal. Exactly one field must be set.
type SignalSource struct {
	// daemonSet holds when the DaemonSet has a ready pod on the node.
	// +optional
	DaemonSet *DaemonSetSignal `json:"daemonSet,omitempty"`

	// daemonSets holds when every selected DaemonSet that should run on the node
	// has a ready pod there.
	// +optional
	DaemonSets *DaemonSetsSignal `json:"daemonSets,omitempty"`

	// pods holds when the matching pods on the node are ready. Mirror pods and pods
	// that have finished are ignored.
	// +optional
	Pods *PodsSignal `json:"pods,omitempty"`

	// completed holds when a pod that runs once, such as that of a Job, has
	// succeeded on the node in the current boot. Of several pods that have finished,
	// the one that was created last decides, so a later failure ends an earlier
	// success.
	//
	// The success is stored on the Node as long as the gate is closed, and when the
	// gate opens. After that, the pod can be deleted without consequences.
	//
	// A pod belongs to the boot whose ID (status.nodeInfo.bootID of the Node) is the
	// value of its label nodegate.dev/boot-id. A pod without the label never counts.
	// +optional
	Completed *CompletedSignal `json:"completed,omitempty"`

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

	// csiDriver holds when the node's CSINode lists the driver. A CSINode that
	// belongs to a former Node of the same name is ignored.
	// +optional
	CSIDriver *CSIDriverSignal `json:"csiDriver,omitempty"`

	// resource holds when the node's allocatable contains enough of the resource.
	// +optional
	Resource *ResourceSignal `json:"resource,omitempty"`

	// resourceSlices holds when every device pool that the DRA driver offers on the
	// node is complete, that is, when all ResourceSlices of the pool's newest
	// generation exist, and the pools have enough usable devices.
	// +optional
	ResourceSlices *ResourceSlicesSignal `json:"resourceSlices,omitempty"`

	// object holds when an object of any kind belongs to the node, and a CEL
	// expression is true for it. An object that is owned by a former Node of the same
	// name does not count.
	// +optional
	Object *ObjectSignal `json:"object,omitempty"`

	// expression holds when the CEL expression evaluates to true for the node. It
	// must return a bool.
	//
	// The expression can use the variables labels, annotations, allocatable,
	// conditions, taints, nodeInfo and created. labels, annotations and allocatable
	// are maps. The values of allocatable are quantities. Each condition has type,
	// status and lastTransitionTime. Each taint has key, value, effect and
	// timeAdded. Taints with the key of taint or recloseTaint are not included,
	// whatever their value and effect. Keys of annotations and
	// allocatable must be literals. The current time is not available.
	//
	// If the expression reads a value that does not exist, the signal is unknown.
	// Use labels[?"key"].orValue("") for a label that may be missing. A gate is not
	// accepted if the expression does not compile, is too large, is nested too
	// deeply or exceeds the cost limit.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^[^(\\[{]*([(\\[{][^(\\[{]*){0,100}$')",message="expression must have at most 100 opening brackets; split it into several signals"
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'(?s)(opt(Flat)?Map.*){4}')",message="expression must use optMap and optFlatMap at most 3 times in total; use orValue or hasValue instead"
	Expression string `json:"expression,omitempty"`
}

// DaemonSetSignal specifies one DaemonSet.
type DaemonSetSignal struct {
	// namespace is the namespace of the DaemonSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace"`

	// name is the name of the DaemonSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="name must be the name of a DaemonSet (lower-case letters, digits, '-' and '.'); correct it"
	Name string `json:"name"`

	// minReadySeconds specifies how long the pod must have been ready, based on the
	// last transition of its Ready condition. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// DaemonSetsSignal selects DaemonSets.
type DaemonSetsSignal struct {
	// namespaces specifies the namespaces of the DaemonSets. Must contain at least
	// one namespace.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespaces []string `json:"namespaces"`

	// selector selects DaemonSets by their own labels. An empty selector ({})
	// selects every DaemonSet in the namespaces.
	// +required
	Selector LabelSelector `json:"selector"`

	// minReadySeconds specifies how long each pod must have been ready, based on
	// the last transition of its Ready condition. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// PodsSignal selects pods on the node. Mirror pods are ignored.
//
// +kubebuilder:validation:XValidation:rule="has(self.readyAnnotation) == (self.readyBy in ['Annotation', 'Either'])",message="readyAnnotation is required when readyBy is Annotation or Either, and must not be set otherwise",fieldPath=".readyAnnotation"
type PodsSignal struct {
	// namespace is the namespace of the pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace"`

	// selector selects pods by their labels. Must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="selector must not be empty, because it would match every pod in the namespace; add matchLabels or matchExpressions"
	Selector LabelSelector `json:"selector"`

	// readyBy specifies what makes a pod ready: its Ready condition, an annotation,
	// or either of them. A pod that is terminating is never ready.
	// +optional
	// +kubebuilder:default=Condition
	ReadyBy ReadyBy `json:"readyBy,omitempty"`

	// readyAnnotation specifies the annotation that makes a pod ready when its
	// value is "true". Required when readyBy is Annotation or Either, and must not
	// be set otherwise. Any user who can patch the pod can set the annotation.
	//
	// After a reboot, or after the Node was re-created, an annotation from before
	// does not count until it is removed and set again. A program that sets the
	// annotation on its own pod must therefore remove it when it starts. A gate that
	// was open before a reboot that nodegate did not observe stays open on such an
	// annotation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="readyAnnotation must be an annotation key; write it as name or example.com/name"
	ReadyAnnotation string `json:"readyAnnotation,omitempty"`

	// minReadySeconds specifies how long a pod must have been ready. The time is
	// based on the last transition of the pod's Ready condition or, for an
	// annotation, on when it was last written. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// require specifies whether at least one matching pod on the node must be
	// ready, or all matching pods. Without a matching pod the signal does not hold.
	// +optional
	// +kubebuilder:default=Any
	Require Require `json:"require,omitempty"`
}

// ReadyBy specifies what makes a pod ready.
//
// +kubebuilder:validation:Enum=Condition;Annotation;Either
type ReadyBy string

const (
	// ReadyByCondition uses the pod's Ready condition.
	ReadyByCondition ReadyBy = "Condition"
	// ReadyByAnnotation uses the annotation readyAnnotation of the pod.
	ReadyByAnnotation ReadyBy = "Annotation"
	// ReadyByEither accepts either the Ready condition or the annotation.
	ReadyByEither ReadyBy = "Either"
)

// Require specifies how many matching pods must be ready.
//
// +kubebuilder:validation:Enum=Any;All
type Require string

const (
	// RequireAny requires at least one matching pod to be ready.
	RequireAny Require = "Any"
	// RequireAll requires all matching pods to be ready. At least one pod must
	// match.
	RequireAll Require = "All"
)

// ConditionSignal matches a condition of the node.
//
// +kubebuilder:validation:XValidation:rule="has(self.type) != has(self.typePattern)",message="set exactly one of type and typePattern"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(self.statusPattern)",message="set exactly one of status and statusPattern"
type ConditionSignal struct {
	// type specifies the type of the condition. Exactly one of type and typePattern
	// must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type,omitempty"`

	// status specifies the status that the condition must have. Exactly one of status
	// and statusPattern must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Status string `json:"status,omitempty"`

	// typePattern specifies a regular expression (RE2) that the whole type of the
	// condition must match. If it matches several conditions, only one of them
	// needs to match the rest of the signal.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="[''.matches(self), ''.matches('^(?:' + self + ')$')].size() == 2",message="typePattern must be a regular expression in RE2 syntax; correct it"
	TypePattern string `json:"typePattern,omitempty"`

	// statusPattern specifies a regular expression (RE2) that the whole status of
	// the condition must match.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="[''.matches(self), ''.matches('^(?:' + self + ')$')].size() == 2",message="statusPattern must be a regular expression in RE2 syntax; correct it"
	StatusPattern string `json:"statusPattern,omitempty"`

	// forSeconds specifies how long the condition must have matched, based on the
	// last transition of its status. A condition without a transition time is
	// unknown. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	ForSeconds int32 `json:"forSeconds,omitempty"`

	// maxHeartbeatAgeSeconds specifies the maximum age of the condition's last
	// heartbeat, with a tolerance of 10 seconds for clock skew. A condition with an
	// older heartbeat is unknown, regardless of its status. If unset, the age of
	// the heartbeat is ignored.
	//
	// If set, the condition is evidence of the current boot once its heartbeat is
	// more than 10 seconds later than the time at which the boot was first observed.
	//
	// If nothing changes, the node problem detector writes a heartbeat every 5
	// minutes. The kubelet does so 2.5 to 7.5 minutes after it started or its status
	// changed, and every 5 minutes after that. With a value of less than 460, such a
	// condition may be unknown for part of the time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxHeartbeatAgeSeconds *int32 `json:"maxHeartbeatAgeSeconds,omitempty"`

	// whenMissing specifies the result of the signal while the node does not have
	// the condition.
	// +optional
	// +kubebuilder:default=NotYet
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// WhenMissing specifies the result of a condition signal while the node does
// not have the condition.
//
// +kubebuilder:validation:Enum=NotYet;Holds
type WhenMissing string

const (
	// MissingNotYet treats a missing condition as not holding.
	MissingNotYet WhenMissing = "NotYet"
	// MissingHolds treats a missing condition as holding.
	MissingHolds WhenMissing = "Holds"
)

// KeyValueSignal matches a label or an annotation of the node.
type KeyValueSignal struct {
	// key is the key of the label or annotation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="key must be a label or annotation key; write it as name or example.com/name"
	Key string `json:"key"`

	// value specifies the value that the label or annotation must have. If unset,
	// any value matches.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`
}
