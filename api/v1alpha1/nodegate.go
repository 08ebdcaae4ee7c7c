// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeGate keeps pods off nodes that are not fit for them. A closed gate is a
// taint on the node; the controller removes the taint when the gate opens. An
// openWhen gate is closed when the Node is created and opens when all of its
// signals hold. A closeWhen gate closes when all of its signals hold.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ng,categories=nodegate
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Taint",type=string,JSONPath=`.spec.taint.key`
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.taint.effect`,priority=1
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Open",type=integer,JSONPath=`.status.nodes.open`
// +kubebuilder:printcolumn:name="Closed",type=integer,JSONPath=`.status.nodes.closed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.mode`
// +kubebuilder:selectablefield:JSONPath=`.spec.taint.key`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 63 characters (lower-case letters, digits and '-'), because it becomes part of an annotation key on nodes",fieldPath=".metadata"
type NodeGate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state of the gate: the nodes that it applies to, its
	// taint, and the signals that open or close it.
	// +required
	Spec NodeGateSpec `json:"spec"`

	// status is the most recently observed state of the gate. Its size does not
	// depend on the number of nodes. observedGeneration is -1 until the controller
	// first processes the gate, so that clients that use kstatus keep waiting.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeGateStatus `json:"status,omitzero"`

	// ReadError is the reason why this version cannot read the stored gate, or
	// empty. If it is set, spec and status are empty, except for the taints if they
	// can be read. Such a gate exists, and nodes that it closed stay closed, but it
	// requests no changes. ReadError is not stored.
	ReadError string `json:"-"`
}

// IsDeclaredAs reports whether g and other, which have the same name, are one gate in the
// same declared state. The generation alone does not show that: it does not change when a
// newer CustomResourceDefinition shows fields that an older one had hidden.
func (g *NodeGate) IsDeclaredAs(other *NodeGate) bool {
	return g == other || g.UID == other.UID && g.Generation == other.Generation && g.ReadError == other.ReadError &&
		equality.Semantic.DeepEqual(&g.Spec, &other.Spec)
}

// NodeGateList is a list of NodeGates.
//
// +kubebuilder:object:root=true
type NodeGateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeGate `json:"items"`
}

// NodeGateSpec is the desired state of a gate.
//
// ---
// Validation rules for more than one field.
//
// +kubebuilder:validation:XValidation:rule="has(self.openWhen) != has(self.closeWhen)",message="set exactly one of openWhen (closed until its signals hold) and closeWhen (closed while its signals hold)"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.reclosePolicy)",message="reclosePolicy must not be set when closeWhen is set; remove it",fieldPath=".reclosePolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.existingNodes)",message="existingNodes must not be set when closeWhen is set, because a closeWhen gate applies to every selected node; remove it",fieldPath=".existingNodes"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.recloseTaint)",message="recloseTaint must not be set when closeWhen is set, because a closeWhen gate has only one taint; remove it",fieldPath=".recloseTaint"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.deadline)",message="deadline must not be set when closeWhen is set; remove it",fieldPath=".deadline"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.openTogether)",message="openTogether must not be set when closeWhen is set; remove it",fieldPath=".openTogether"
// +kubebuilder:validation:XValidation:rule="!has(self.closeTogether) || has(self.openTogether)",message="closeTogether requires openTogether, which specifies the group; set openTogether, or remove closeTogether",fieldPath=".closeTogether"
// +kubebuilder:validation:XValidation:rule="!has(self.closeTogether) || self.closeTogether == 'Never' || !has(self.reclosePolicy) || self.reclosePolicy != 'Never'",message="closeTogether WhenIncomplete has no effect with reclosePolicy Never, because the gate does not close again; use another reclosePolicy, or remove closeTogether",fieldPath=".closeTogether"
// +kubebuilder:validation:XValidation:rule="!has(self.deadline) || !has(self.deadline.podMissingSeconds) || !has(self.openWhen) || self.openWhen.exists(s, has(s.daemonSet) || has(s.daemonSets) || has(s.pods) || has(s.completed) || (has(s.anyOf) && s.anyOf.all(a, has(a.daemonSet) || has(a.daemonSets) || has(a.pods) || has(a.completed))))",message="deadline.podMissingSeconds requires a signal of kind daemonSet, daemonSets, pods or completed, or anyOf with only these kinds; add one, or use deadline.readySeconds",fieldPath=".deadline.podMissingSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !self.closeWhen.exists(s, has(s.completed) || (has(s.anyOf) && s.anyOf.exists(a, has(a.completed))))",message="completed must not be used in closeWhen, because it requires evidence of the current boot, which only openWhen gates have; use openWhen",fieldPath=".closeWhen"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || self.bypassedPods == 'Ignore'",message="bypassedPods must not be set when closeWhen is set; remove it",fieldPath=".bypassedPods"
// +kubebuilder:validation:XValidation:rule="self.bypassedPods == 'Ignore' || self.taint.effect != 'PreferNoSchedule' || (has(self.recloseTaint) && self.recloseTaint.effect != 'PreferNoSchedule')",message="bypassedPods has no effect with taint.effect PreferNoSchedule, which does not keep pods off the node; remove bypassedPods, or use NoSchedule",fieldPath=".bypassedPods"
// +kubebuilder:validation:XValidation:rule="self.bypassedPods != 'Evict' || (has(self.acknowledge) && 'PodEviction' in self.acknowledge)",message="bypassedPods Evict evicts running pods; add PodEviction to acknowledge, or use Report",fieldPath=".bypassedPods"
// +kubebuilder:validation:XValidation:rule="self.bypassedPods != 'Hold' || !has(self.reclosePolicy) || self.reclosePolicy != 'Never'",message="bypassedPods Hold has no effect with reclosePolicy Never, because the gate does not close again; use another reclosePolicy",fieldPath=".bypassedPods"
// +kubebuilder:validation:XValidation:rule="!has(self.holdSeconds) || self.bypassedPods == 'Hold'",message="holdSeconds requires bypassedPods Hold; remove holdSeconds",fieldPath=".holdSeconds"
// +kubebuilder:validation:XValidation:rule="self.reopen != 'Manual' || has(self.closeWhen)",message="reopen Manual requires closeWhen; remove reopen",fieldPath=".reopen"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || self.timing.closeAfterSeconds in [0, 120]",message="timing.closeAfterSeconds must not be set when closeWhen is set, because a closeWhen gate closes immediately; remove it",fieldPath=".timing.closeAfterSeconds"
// +kubebuilder:validation:XValidation:rule="self.reopen != 'Manual' || self.timing.minClosedSeconds == 0",message="timing.minClosedSeconds must be 0 when reopen is Manual; remove it",fieldPath=".timing.minClosedSeconds"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || self.timing.minClosedSeconds == 0",message="timing.minClosedSeconds would keep node.kubernetes.io/out-of-service on a node that is reporting again; remove it",fieldPath=".timing.minClosedSeconds"
// +kubebuilder:validation:XValidation:rule="self.reopen != 'Manual' || self.timing.openAfterSeconds == 0",message="timing.openAfterSeconds must be 0 when reopen is Manual; remove it",fieldPath=".timing.openAfterSeconds"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || self.timing.openAfterSeconds == 0",message="timing.openAfterSeconds would keep node.kubernetes.io/out-of-service on a node that is reporting again; remove it",fieldPath=".timing.openAfterSeconds"
// +kubebuilder:validation:XValidation:rule="self.taint.effect != 'NoExecute' || (has(self.acknowledge) && 'PodEviction' in self.acknowledge)",message="taint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",fieldPath=".taint.effect"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || (has(self.acknowledge) && 'VolumeDetach' in self.acknowledge)",message="taint.key node.kubernetes.io/out-of-service detaches volumes; add VolumeDetach to acknowledge, or use another key",fieldPath=".taint.key"
// +kubebuilder:validation:XValidation:rule="!has(self.recloseTaint) || self.recloseTaint.effect != 'NoExecute' || (has(self.acknowledge) && 'PodEviction' in self.acknowledge)",message="recloseTaint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",fieldPath=".recloseTaint.effect"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || has(self.closeWhen)",message="taint.key node.kubernetes.io/out-of-service requires closeWhen, so that the taint is removed as soon as the node is reporting again; use closeWhen, or another key",fieldPath=".taint.key"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || self.reopen != 'Manual'",message="reopen must not be Manual with taint.key node.kubernetes.io/out-of-service, which is removed as soon as the node is reporting again; remove reopen",fieldPath=".reopen"
// +kubebuilder:validation:XValidation:rule="!has(self.recloseTaint) || self.recloseTaint.key != 'node.kubernetes.io/out-of-service'",message="recloseTaint.key node.kubernetes.io/out-of-service is only for closeWhen gates, which have no recloseTaint; use another key",fieldPath=".recloseTaint.key"
// +kubebuilder:validation:XValidation:rule="!has(self.recloseTaint) || self.recloseTaint.key != self.taint.key || self.recloseTaint.effect != self.taint.effect || (has(self.recloseTaint.value) && self.recloseTaint.value.size() > 0 ? has(self.taint.value) && self.taint.value == self.recloseTaint.value : !has(self.taint.value) || self.taint.value.size() == 0)",message="recloseTaint must differ from taint in more than its value; use another key, or remove recloseTaint",fieldPath=".recloseTaint.value"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerate) || !self.tolerate || !has(self.closeWhen)",message="tolerate must not be set when closeWhen is set, because a closeWhen gate waits for no DaemonSet; remove it",fieldPath=".tolerate"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerate) || !self.tolerate || !has(self.openWhen) || self.openWhen.exists(s, has(s.daemonSet) || has(s.daemonSets) || (has(s.anyOf) && s.anyOf.exists(n, has(n.daemonSet) || has(n.daemonSets))))",message="tolerate requires a signal of kind daemonSet or daemonSets; add one, or remove tolerate",fieldPath=".tolerate"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerate) || !self.tolerate || self.taint.effect != 'PreferNoSchedule' || (has(self.recloseTaint) && self.recloseTaint.effect != 'PreferNoSchedule')",message="tolerate has no effect with taint.effect PreferNoSchedule, which does not keep pods off the node; remove tolerate, or use NoSchedule",fieldPath=".tolerate"
type NodeGateSpec struct {
	// nodeSelector specifies the nodes that the gate applies to. An empty selector
	// ({}) selects every node. A node that becomes selected within 10 minutes of
	// its creation counts as new to the gate. existingNodes applies to nodes that
	// become selected later. When a node has not been selected for 30 seconds, the
	// controller opens the gate on it and removes the gate's record from it.
	// +required
	NodeSelector LabelSelector `json:"nodeSelector"`

	// taint specifies the taint that the gate adds to a node when it closes. If
	// recloseTaint is set, taint applies only to new nodes, until the gate first
	// opens on them. taint may be changed: the controller replaces the old taint
	// with the new one in a single patch per closed node. Several gates may share a
	// taint; it stays on the node while any of them is closed.
	// +required
	Taint Taint `json:"taint"`

	// recloseTaint specifies the taint that replaces taint on nodes that are not
	// new to the gate. It applies every time the gate closes after it first opened
	// on the node, and when the gate closes because of existingNodes. Defaults to
	// taint. May only be set with openWhen. It supports autoscalers, which use one
	// kind of taint key for nodes that are still starting and another for nodes
	// that are in use but unhealthy.
	//
	// If a gate was closed when the Node was created, taint stays on the node until
	// the gate first opens, including across reboots. Opening by a manual override
	// counts as the first opening. An existing node that already carries one of the
	// two taints when the gate is created keeps that taint.
	//
	// The administrator must allow both keys. The gate owns both taints. Daemons
	// that the gate waits for must tolerate both. recloseTaint may be changed in
	// the same way as taint. If its effect is NoExecute, the gate does not close on
	// a node merely because the node is unreachable (Ready is Unknown).
	// +optional
	RecloseTaint *Taint `json:"recloseTaint,omitempty"`

	// openWhen lists the signals that must all hold for the gate to open. The gate
	// is closed when a Node is created. Exactly one of openWhen and closeWhen must
	// be set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	OpenWhen []Signal `json:"openWhen,omitempty"`

	// closeWhen lists the signals that must all hold for the gate to close. Exactly
	// one of openWhen and closeWhen must be set. The gate applies to every selected
	// node, regardless of the node's age. It closes, within the budget, as soon as
	// all signals hold, and opens as soon as one of them does not hold. An unknown
	// signal changes nothing. Signals are evaluated as the API reports them, even
	// while a node is unreachable, shutting down or still being set up, and after
	// it has rebooted.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CloseWhen []Signal `json:"closeWhen,omitempty"`

	// openTogether makes the gate open on the nodes of a group at once: only when
	// enough of them are fit, and then on all that are fit. It is for nodes that are
	// useful only together, such as those of a rack or of an accelerator slice. May
	// only be set with openWhen.
	//
	// While the gate waits for the group, status.waiting and 'kubectl gate why' name
	// the nodes that are not fit. A node that became unreachable or announced its
	// shutdown and then returned without a reboot does not wait for the group, unless
	// closeTogether is WhenIncomplete. deadline applies while the gate waits for the
	// group: with action: Open, the gate opens on the node without the group.
	// +optional
	OpenTogether *OpenTogether `json:"openTogether,omitempty"`

	// closeTogether specifies whether the gate closes on the other nodes of a group
	// when nodes are lost. Defaults to Never. Requires openTogether.
	//
	// With WhenIncomplete, budget.maxReclosed limits how many nodes of a zone are
	// closed. Nodes over the limit stay open, so it should allow at least as many
	// nodes as a group has. A node that the deadline opened stays open until its
	// signals hold and its group has been complete once.
	// +optional
	CloseTogether CloseTogether `json:"closeTogether,omitempty"`

	// reclosePolicy specifies when a gate closes again after it has opened.
	// Defaults to OnReboot. May only be set with openWhen.
	// +optional
	ReclosePolicy ReclosePolicy `json:"reclosePolicy,omitempty"`

	// existingNodes specifies how the gate treats existing nodes: nodes without a
	// record of this gate that are older than 10 minutes or older than the gate.
	// Defaults to Ignore. May only be set with openWhen. Regardless of the value, a
	// node that already carries the taint becomes a member with the gate closed.
	// Adopt, CloseIfIdle and Close are cumulative: each value also does what the
	// previous one does.
	// +optional
	ExistingNodes ExistingNodes `json:"existingNodes,omitempty"`

	// reopen specifies whether a closed closeWhen gate opens automatically when one
	// of its signals no longer holds, or only when a user removes the taint
	// (kubectl taint node <node> <key>-). A gate that a user opened does not close
	// again until at least one of its signals has stopped holding. Manual requires
	// closeWhen.
	// +optional
	// +kubebuilder:default=Automatic
	Reopen Reopen `json:"reopen,omitempty"`

	// timing specifies how long the gate waits before it opens or closes.
	// +optional
	// +kubebuilder:default={}
	Timing Timing `json:"timing,omitempty"`

	// deadline limits how long a node may wait for the gate to open. If unset,
	// there is no limit. May only be set with openWhen. At least one of
	// podMissingSeconds and readySeconds must be set.
	//
	// The clock starts when the gate closes on the node. If the gate was closed
	// when the Node was created, the clock starts at the Node's creation. It
	// restarts with each boot and pauses while the node is unreachable. Changes to
	// pods and restarts of nodegate do not affect it.
	//
	// When the deadline passes, the controller emits a Warning Event about the
	// node, and the condition Overdue is True. For a closed node, this ends when the
	// gate opens, the node reboots or the deadline is extended. For a node that the
	// deadline has opened, it ends when all signals have held once, or when the gate
	// closes again. status.nodes.overdue counts only closed nodes.
	// +optional
	Deadline *Deadline `json:"deadline,omitempty"`

	// budget limits how many nodes may be closed at a time for reasons other than
	// node creation, an observed reboot, unreachability and announced shutdown.
	// Nodes over the limit wait to be closed, and the condition Throttled reports
	// them. Opening is never limited.
	// +optional
	// +kubebuilder:default={}
	Budget Budget `json:"budget,omitempty"`

	// bypassedPods specifies how the controller handles pods that bypassed the
	// closed gate: pods that do not tolerate its taint and that started on the node
	// in the current boot while the gate was closed. The controller checks for such
	// pods once, after the gate has opened because its signals hold. It also reports
	// pods that the kubelet rejected while the gate was closed, for example because
	// their device plugin had not registered after a reboot. All values but Ignore
	// require openWhen. Evict requires PodEviction in acknowledge, and the permission
	// to evict pods, which 'nodegate manifests' grants with --evict-pods. Hold requires nodegate's agent
	// on the nodes, and a reclosePolicy other than Never.
	// +optional
	// +kubebuilder:default=Ignore
	BypassedPods BypassedPods `json:"bypassedPods,omitempty"`

	// holdSeconds specifies how long bypassedPods: Hold prevents a pod from starting
	// at most, beginning with the first attempt to start it. After that, the pod
	// starts although the gate is closed. The gate stays closed to other pods.
	// Defaults to 600. May only be set with bypassedPods: Hold.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	HoldSeconds *int32 `json:"holdSeconds,omitempty"`

	// acknowledge lists the risks that the author of the gate accepts. PodEviction
	// is required for a taint with the effect NoExecute, and for bypassedPods: Evict.
	// VolumeDetach is required for the taint key node.kubernetes.io/out-of-service.
	// Defaults to none.
	//
	// A user needs the verb acknowledge-eviction on nodegates.nodegate.dev to create
	// a gate with PodEviction, or to change the spec of a gate that keeps
	// PodEviction. The verb for VolumeDetach is acknowledge-detach.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Acknowledge []Acknowledgement `json:"acknowledge,omitempty"`

	// tolerate specifies whether the API server adds tolerations of the gate's taints
	// to the DaemonSets that the gate waits for: those that its signals of the kinds
	// daemonSet and daemonSets select, also within anyOf. The admission policy
	// nodegate-tolerations adds them to the pod template when such a DaemonSet is
	// created or updated, even while nodegate is not running. It adds the key and the
	// effect of taint and recloseTaint, with the operator Exists, unless the pod
	// template tolerates them already. It changes nothing else and never removes a
	// toleration. Taints with the effect PreferNoSchedule are omitted. Defaults to
	// false. May only be set with openWhen, and requires one of these signals.
	//
	// Adding a toleration changes the pod template, so the DaemonSet controller
	// replaces the DaemonSet's pods according to its update strategy. DaemonSets that
	// existed before the gate change at their next update. To change them immediately,
	// or if the policy is not installed, run 'kubectl gate tolerate'. The policy
	// requires Kubernetes 1.36. A gate in mode DryRun adds no tolerations.
	// +optional
	Tolerate bool `json:"tolerate,omitempty"`

	// openedAtAnnotation specifies the key of a node annotation that the controller
	// sets to the time at which the closed gate opened, in Unix seconds. The
	// annotation is written in the same patch that opens the gate, and stays until
	// the gate opens again. The administrator must allow the key; if it is not
	// allowed, the gate is in force but the annotation is not written. If unset, no
	// annotation is written.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="openedAtAnnotation must be an annotation key; write it as name or example.com/name"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?nodegate[.]dev/')",message="annotations under nodegate.dev/ and its subdomains belong to nodegate; choose another key"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?kubernetes[.]io/')",message="annotations under kubernetes.io/ belong to Kubernetes; choose another key"
	OpenedAtAnnotation string `json:"openedAtAnnotation,omitempty"`

	// mode specifies whether the gate acts on nodes. Only a gate in mode Enforce
	// does. Any other mode is shown in the gate's conditions, in the column MODE
	// and in the metric nodegate_gate_mode. When the mode returns to Enforce, the
	// gate treats nodes without a record as it would at its creation: existingNodes
	// applies to those that are not new.
	// +optional
	// +kubebuilder:default=Enforce
	Mode Mode `json:"mode,omitempty"`
}

// Follows reports whether the gate follows its signals, that is, whether it is
// a closeWhen gate.
func (s *NodeGateSpec) Follows() bool { return len(s.CloseWhen) > 0 }

// ClosesTogether reports whether the gate closes on the rest of an incomplete group.
func (s *NodeGateSpec) ClosesTogether() bool {
	return s.OpenTogether != nil && s.CloseTogether == CloseTogetherWhenIncomplete
}

// Enforces reports whether the gate acts on nodes.
func (s *NodeGateSpec) Enforces() bool { return s.Mode.OrDefault() == ModeEnforce }

// ReclosePolicy specifies when a gate closes again after it has opened.
//
// +kubebuilder:validation:Enum=Never;OnReboot;OnRegression
type ReclosePolicy string

const (
	// RecloseNever closes the gate once per Node object, when the Node is created.
	RecloseNever ReclosePolicy = "Never"
	// RecloseOnReboot also closes the gate when the node announces its shutdown,
	// becomes unreachable (Ready is Unknown) or reports a new boot ID.
	RecloseOnReboot ReclosePolicy = "OnReboot"
	// RecloseOnRegression also closes the gate when a signal has not held for
	// timing.closeAfterSeconds.
	RecloseOnRegression ReclosePolicy = "OnRegression"
)

// ExistingNodes specifies how a gate treats existing nodes.
//
// +kubebuilder:validation:Enum=Ignore;Adopt;CloseIfIdle;Close
type ExistingNodes string

const (
	// ExistingIgnore does not make the node a member of the gate, as long as
	// existingNodes has this value and the node does not carry the gate's taint.
	ExistingIgnore ExistingNodes = "Ignore"
	// ExistingAdopt makes the node a member of the gate when the signals hold.
	// Until then, the node is not changed.
	ExistingAdopt ExistingNodes = "Adopt"
	// ExistingCloseIfIdle closes the gate on idle nodes, within the budget and at
	// most ten nodes per second. A node is idle if it runs only daemon, mirror and
	// finished pods, regardless of their namespace. Shortly after the gate closes,
	// the controller checks the node again and opens the gate if the node is not
	// idle after all. It checks nodes that are not idle again every ten minutes.
	ExistingCloseIfIdle ExistingNodes = "CloseIfIdle"
	// ExistingClose closes the gate on existing nodes, within the budget.
	ExistingClose ExistingNodes = "Close"
)

// Reopen specifies how a closed closeWhen gate opens.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type Reopen string

const (
	// ReopenAutomatic opens the gate when its signals no longer all hold.
	ReopenAutomatic Reopen = "Automatic"
	// ReopenManual keeps the gate closed until a user removes the taint.
	ReopenManual Reopen = "Manual"
)

// Mode specifies whether a gate acts on nodes.
//
// +kubebuilder:validation:Enum=Enforce;DryRun;Paused
type Mode string

const (
	// ModeEnforce opens and closes the gate on nodes.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun evaluates the gate but does not change nodes. The status and the
	// log show what the gate would do. When a gate enters this mode, the controller
	// opens it on all nodes that it closed, and removes its records. The taint key
	// need not be allowed yet.
	ModeDryRun Mode = "DryRun"
	// ModePaused leaves nodes unchanged: closed nodes stay closed and open nodes
	// stay open, regardless of what happens to them. New nodes are not closed.
	// Deleting the gate opens it. The taint node.kubernetes.io/out-of-service is
	// still removed from a node that is reporting again.
	ModePaused Mode = "Paused"
)

// OrDefault returns the mode, or the default if it is not set.
func (m Mode) OrDefault() Mode { return cmp.Or(m, ModeEnforce) }
