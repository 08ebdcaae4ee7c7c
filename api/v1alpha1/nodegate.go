// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeGate keeps pods off nodes until the nodes are fit for them, and off
// again when they no longer are. A closed gate is a taint on the node; the
// gate opens, and the taint goes, when all of its signals hold.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 63 characters (lower-case letters, digits and '-'), because it becomes part of an annotation key on nodes",fieldPath=".metadata"
type NodeGate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which nodes are gated, by which taint, and what opens the gate.
	// +required
	Spec NodeGateSpec `json:"spec"`

	// status is what nodegate last observed. Its size does not depend on the
	// number of nodes. Until a gate has been looked at, observedGeneration is -1,
	// so that whoever waits for it by kstatus goes on waiting.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeGateStatus `json:"status,omitzero"`

	// ReadError is why spec and status are missing, but for what is known of the
	// taints: the gate is stored in a form that this version cannot read. It exists,
	// and what it closed stays closed, but it asks for nothing. It is no part of
	// what is stored, and empty otherwise.
	ReadError string `json:"-"`
}

// NodeGateList is a list of NodeGates.
//
// +kubebuilder:object:root=true
type NodeGateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeGate `json:"items"`
}

// NodeGateSpec declares one gate.
//
// ---
// Rules about more than one field.
//
// +kubebuilder:validation:XValidation:rule="has(self.openWhen) != has(self.closeWhen)",message="set exactly one of openWhen (closed until its signals hold) and closeWhen (closed while its signals hold)"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.reclosePolicy)",message="a closeWhen gate follows its signals and has no reclosePolicy; remove it",fieldPath=".reclosePolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.existingNodes)",message="a closeWhen gate applies to every selected node and has no existingNodes; remove it",fieldPath=".existingNodes"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.recloseTaint)",message="a closeWhen gate has one taint and no recloseTaint; remove it",fieldPath=".recloseTaint"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || !has(self.deadline)",message="a closeWhen gate waits for nothing and has no deadline; remove it",fieldPath=".deadline"
// +kubebuilder:validation:XValidation:rule="!has(self.deadline) || !has(self.deadline.podMissingSeconds) || !has(self.openWhen) || self.openWhen.exists(s, has(s.daemonSet) || has(s.daemonSets) || has(s.pods) || has(s.anyOf))",message="no signal of this gate looks at pods, so that none can be missing; use deadline.readySeconds",fieldPath=".deadline.podMissingSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || self.bypassedPods == 'Ignore'",message="a closeWhen gate follows its signals and has no bypassedPods; remove it",fieldPath=".bypassedPods"
// +kubebuilder:validation:XValidation:rule="self.bypassedPods == 'Ignore' || self.taint.effect != 'PreferNoSchedule' || (has(self.recloseTaint) && self.recloseTaint.effect != 'PreferNoSchedule')",message="taint.effect PreferNoSchedule lets pods in, and none gets past it; remove bypassedPods, or use NoSchedule",fieldPath=".bypassedPods"
// +kubebuilder:validation:XValidation:rule="self.reopen != 'Manual' || has(self.closeWhen)",message="only a closeWhen gate can be reopened by hand; remove reopen",fieldPath=".reopen"
// +kubebuilder:validation:XValidation:rule="!has(self.closeWhen) || self.timing.closeAfterSeconds in [0, 120]",message="timing.closeAfterSeconds is for OnRegression gates, and a closeWhen gate closes at once; remove it",fieldPath=".timing.closeAfterSeconds"
// +kubebuilder:validation:XValidation:rule="self.reopen != 'Manual' || self.timing.minClosedSeconds == 0",message="a gate that is reopened by hand is closed as long as a person says; remove timing.minClosedSeconds",fieldPath=".timing.minClosedSeconds"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || self.timing.minClosedSeconds == 0",message="timing.minClosedSeconds would keep node.kubernetes.io/out-of-service on a node that is back; remove it",fieldPath=".timing.minClosedSeconds"
// +kubebuilder:validation:XValidation:rule="self.reopen != 'Manual' || self.timing.openAfterSeconds == 0",message="a gate that is reopened by hand is closed as long as a person says; remove timing.openAfterSeconds",fieldPath=".timing.openAfterSeconds"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || self.timing.openAfterSeconds == 0",message="timing.openAfterSeconds would keep node.kubernetes.io/out-of-service on a node that is back; remove it",fieldPath=".timing.openAfterSeconds"
// +kubebuilder:validation:XValidation:rule="self.taint.effect != 'NoExecute' || (has(self.acknowledge) && 'PodEviction' in self.acknowledge)",message="taint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",fieldPath=".taint.effect"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || (has(self.acknowledge) && 'VolumeDetach' in self.acknowledge)",message="taint.key node.kubernetes.io/out-of-service detaches volumes; add VolumeDetach to acknowledge, or use another key",fieldPath=".taint.key"
// +kubebuilder:validation:XValidation:rule="!has(self.recloseTaint) || self.recloseTaint.effect != 'NoExecute' || (has(self.acknowledge) && 'PodEviction' in self.acknowledge)",message="recloseTaint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",fieldPath=".recloseTaint.effect"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || has(self.closeWhen)",message="taint.key node.kubernetes.io/out-of-service is only for closeWhen gates: it goes on when a node is gone and comes off when it speaks; use closeWhen, or another key",fieldPath=".taint.key"
// +kubebuilder:validation:XValidation:rule="self.taint.key != 'node.kubernetes.io/out-of-service' || self.reopen != 'Manual'",message="the taint node.kubernetes.io/out-of-service goes as soon as the node speaks again and waits for nobody; remove reopen",fieldPath=".reopen"
// +kubebuilder:validation:XValidation:rule="!has(self.recloseTaint) || self.recloseTaint.key != 'node.kubernetes.io/out-of-service'",message="recloseTaint.key node.kubernetes.io/out-of-service is only for closeWhen gates, which have no recloseTaint; use another key",fieldPath=".recloseTaint.key"
// +kubebuilder:validation:XValidation:rule="!has(self.recloseTaint) || self.recloseTaint.key != self.taint.key || self.recloseTaint.effect != self.taint.effect || (has(self.recloseTaint.value) && self.recloseTaint.value.size() > 0 ? has(self.taint.value) && self.taint.value == self.recloseTaint.value : !has(self.taint.value) || self.taint.value.size() == 0)",message="recloseTaint differs from taint in nothing but its value, by which nobody tells one from the other; use another key, or remove recloseTaint",fieldPath=".recloseTaint.value"
//
// Not built yet. Each of these rules goes when its field works. The signals
// have theirs at SignalSource and Signal.
type NodeGateSpec struct {
	// nodeSelector selects the nodes that are gated; {} selects every node. A
	// node that becomes selected within 10 minutes of its creation counts as
	// born into the gate; later, existingNodes decides. A node that leaves the
	// selection is opened and its record dropped.
	// +required
	NodeSelector LabelSelector `json:"nodeSelector"`

	// taint is what a closed gate puts on a node. Where there is a recloseTaint, it
	// is for new nodes, until the gate has opened there. It may be edited: the old
	// and the new taint are swapped in one patch per closed node. Several gates may
	// share one taint; it is on while any of them is closed.
	// +required
	Taint Taint `json:"taint"`

	// recloseTaint replaces taint on nodes that are not new to the gate: for every
	// close after the gate's first opening there, and where existingNodes closes.
	// Defaults to taint. Autoscalers know one kind of key for nodes that are still
	// starting and another for nodes that are in use but ill. A gate that closed at
	// birth keeps taint until it opens, also through reboots, be it by an override; a
	// node that carries one of the two when the gate comes keeps that one. Both keys must be allowed,
	// both are the gate's own, and daemons that the gate waits for must tolerate
	// both. It may be edited like taint. Silence alone closes no gate of which this
	// taint is NoExecute. Only with openWhen.
	// +optional
	RecloseTaint *Taint `json:"recloseTaint,omitempty"`

	// openWhen lists the signals that must all hold for the gate to open. The
	// gate is closed at a node's birth. Exactly one of openWhen and closeWhen
	// is set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	OpenWhen []Signal `json:"openWhen,omitempty"`

	// closeWhen lists the signals that must all hold for the gate to close. It
	// applies to every selected node, whatever its age, at once and always: the
	// gate closes, under the budget, as soon as all of them hold, and opens as
	// soon as one of them does not. An unknown signal changes nothing. Signals
	// are taken as the API tells them, also of a node that is silent, shutting
	// down, rebooted or still being set up.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CloseWhen []Signal `json:"closeWhen,omitempty"`

	// reclosePolicy says when a gate that opened closes again. Defaults to
	// OnReboot. Only with openWhen.
	// +optional
	ReclosePolicy ReclosePolicy `json:"reclosePolicy,omitempty"`

	// existingNodes says what happens to nodes that are not new: those without
	// a record of this gate that are older than 10 minutes or older than the
	// gate. Defaults to Ignore. Only with openWhen. A node that already carries
	// the taint is adopted as closed in every case. Each value but Ignore also
	// does what the one before it does: Adopt, CloseIfIdle, Close.
	// +optional
	ExistingNodes ExistingNodes `json:"existingNodes,omitempty"`

	// reopen says whether a closed closeWhen gate opens by itself once a signal
	// no longer holds, or only by a person, who removes the taint (kubectl taint
	// node NAME KEY-). Opened by a person, it stays open until a signal has not
	// held once.
	// +optional
	// +kubebuilder:default=Automatic
	Reopen Reopen `json:"reopen,omitempty"`

	// timing holds the gate's waits.
	// +optional
	// +kubebuilder:default={}
	Timing Timing `json:"timing,omitempty"`

	// deadline bounds how long a node may wait; there is none by default. Its clock
	// starts when the gate closes on the node (at birth: when the Node is created),
	// anew with each boot, and stands still while the node is silent. Whatever
	// happens to pods and to nodegate, it goes on. When it has passed, a Warning
	// Event about the node, the condition Overdue and nodes.overdue tell, until the
	// gate opens or the node reboots. Only with openWhen.
	// +optional
	Deadline *Deadline `json:"deadline,omitempty"`

	// budget bounds how many nodes may be closed for anything but birth,
	// reboot, silence and announced shutdown. What would be closed beyond it waits,
	// and the condition Throttled tells of it. Opening is never held back.
	// +optional
	// +kubebuilder:default={}
	Budget Budget `json:"budget,omitempty"`

	// bypassedPods says what to do about pods that started on a node in its
	// current boot while the gate was closed and that do not tolerate it. They
	// are looked for once, when the gate has opened by its signals. Only with
	// openWhen. Evict needs the right to evict pods, which 'nodegate manifests'
	// gives with --evict-pods.
	// +optional
	// +kubebuilder:default=Ignore
	BypassedPods BypassedPods `json:"bypassedPods,omitempty"`

	// acknowledge lists the dangers that the author of this gate accepts:
	// PodEviction is required for a NoExecute taint, VolumeDetach for
	// node.kubernetes.io/out-of-service. None by default.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Acknowledge []Acknowledgement `json:"acknowledge,omitempty"`

	// openedAtAnnotation names an extra node annotation that is stamped with the
	// Unix time, in seconds, of each opening of the closed gate, in the same
	// write. It stays until the next opening. The administrator lists the keys
	// that nodegate may use; a gate with another key is in force without it. None by
	// default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="openedAtAnnotation must be an annotation key; write it as name or example.com/name"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('gate.nodegate.dev/')",message="annotations under gate.nodegate.dev/ are nodegate's own records; choose another key"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?kubernetes[.]io/')",message="annotations under kubernetes.io/ belong to Kubernetes; choose another key"
	OpenedAtAnnotation string `json:"openedAtAnnotation,omitempty"`

	// mode says whether the gate acts. Only Enforce does. The gate's conditions, the
	// column MODE and the metric nodegate_gate_mode tell of any other. Going back to
	// Enforce, the gate meets the nodes that it has no record of as it would at its
	// creation: existingNodes decides about those that are not new.
	// +optional
	// +kubebuilder:default=Enforce
	Mode Mode `json:"mode,omitempty"`
}

// Follows tells whether the gate follows its signals: a closeWhen gate.
func (s *NodeGateSpec) Follows() bool { return len(s.CloseWhen) > 0 }

// Enforces tells whether the gate acts.
func (s *NodeGateSpec) Enforces() bool { return s.Mode == "" || s.Mode == ModeEnforce }

// ReclosePolicy says when a gate that opened closes again.
//
// +kubebuilder:validation:Enum=Never;OnReboot;OnRegression
type ReclosePolicy string

const (
	// RecloseNever closes the gate once per Node object, at its birth.
	RecloseNever ReclosePolicy = "Never"
	// RecloseOnReboot also closes it when the node announces shutdown, falls
	// silent or shows a new boot ID.
	RecloseOnReboot ReclosePolicy = "OnReboot"
	// RecloseOnRegression also closes it as soon as a signal has stopped
	// holding for timing.closeAfterSeconds.
	RecloseOnRegression ReclosePolicy = "OnRegression"
)

// ExistingNodes says what happens to nodes that are not new to a gate.
//
// +kubebuilder:validation:Enum=Ignore;Adopt;CloseIfIdle;Close
type ExistingNodes string

const (
	// ExistingIgnore leaves the node outside the gate for the life of the Node
	// object, whatever happens.
	ExistingIgnore ExistingNodes = "Ignore"
	// ExistingAdopt does nothing now; once the signals hold, the node becomes a
	// member of the gate.
	ExistingAdopt ExistingNodes = "Adopt"
	// ExistingCloseIfIdle closes the gate on nodes where nothing but daemon,
	// mirror and finished pods run, of whatever namespace: under the budget, and
	// at most ten nodes a second. A node that is found not to be idle after all,
	// just after it was closed, is opened again. One that is not idle is looked
	// at again every ten minutes.
	ExistingCloseIfIdle ExistingNodes = "CloseIfIdle"
	// ExistingClose closes the gate on existing nodes, under the budget.
	ExistingClose ExistingNodes = "Close"
)

// Reopen says how a closed closeWhen gate opens.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type Reopen string

const (
	// ReopenAutomatic opens the gate once its signals no longer hold.
	ReopenAutomatic Reopen = "Automatic"
	// ReopenManual keeps the gate closed until a person removes the taint.
	ReopenManual Reopen = "Manual"
)

// Timing holds a gate's waits, in seconds.
type Timing struct {
	// minClosedSeconds is how long the gate, having closed, stays closed at least
	// although its signals would open it. At a node's birth it counts from the
	// Node's creation, after a reboot from when the new boot is seen. It does not
	// keep closed a node that fell silent, or announced its shutdown, and is back
	// without a reboot, nor one that carried the taint before it came under the
	// gate. Not with reopen Manual.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinClosedSeconds int32 `json:"minClosedSeconds,omitempty"`

	// openAfterSeconds is how long, without a break, the signals must have held
	// before a closed gate opens (soak); of a closeWhen gate, for how long they must
	// not have all held. It runs beside minClosedSeconds, not after it. After a
	// reboot it begins with the new boot at the earliest. It does not keep closed a
	// node that fell silent, or announced its shutdown, and is back without a reboot.
	// Labels, annotations, resources, CSI drivers and resource slices do not tell
	// since when: if the controller is replaced, the wait for these begins again.
	// Not with reopen Manual.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	OpenAfterSeconds int32 `json:"openAfterSeconds,omitempty"`

	// closeAfterSeconds is how long a signal must have stopped holding before an
	// OnRegression gate closes (damping). Only with openWhen: a closeWhen gate
	// closes at once.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CloseAfterSeconds *int32 `json:"closeAfterSeconds,omitempty"`

	// rolloutGraceSeconds is how long a daemon that is being replaced by its own
	// rollout still counts as ready for an OnRegression gate. 0 closes the gate
	// as soon as the daemon begins to go away.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RolloutGraceSeconds *int32 `json:"rolloutGraceSeconds,omitempty"`
}

// Budget bounds how many nodes may be closed for anything but birth, reboot,
// silence and announced shutdown.
type Budget struct {
	// maxReclosed is the number, or the percentage (rounded up, at least 1), of
	// the gate's nodes in one zone that may be closed this way at a time. A zone is
	// what the label topology.kubernetes.io/zone says; nodes without it are one zone.
	// +optional
	// +kubebuilder:default="20%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxReclosed must be a number of nodes from 0 to 1000000, or a percentage from 0% to 100%"
	MaxReclosed *intstr.IntOrString `json:"maxReclosed,omitempty"`
}

// BypassedPods says what to do about pods that got past a closed gate.
//
// +kubebuilder:validation:Enum=Ignore;Report;Evict
type BypassedPods string

const (
	// BypassedIgnore does nothing.
	BypassedIgnore BypassedPods = "Ignore"
	// BypassedReport names them in an event and a metric.
	BypassedReport BypassedPods = "Report"
	// BypassedEvict also evicts them, paced, through the Eviction API, so that
	// PodDisruptionBudgets are kept; but never daemon, mirror, host-network or
	// ownerless pods.
	BypassedEvict BypassedPods = "Evict"
)

// Mode says whether a gate acts.
//
// +kubebuilder:validation:Enum=Enforce;DryRun;Paused
type Mode string

const (
	// ModeEnforce opens and closes.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun decides and changes nothing: the status, and the log, tell what
	// would be. What the gate held when it came into this mode is opened, and its
	// records go. The taint key need not be allowed yet.
	ModeDryRun Mode = "DryRun"
	// ModePaused leaves nodes as they are: closed ones stay closed, open ones open,
	// whatever happens to them, and new nodes are not closed. Deleting the gate opens
	// it. A node with the taint node.kubernetes.io/out-of-service is opened when it
	// speaks all the same.
	ModePaused Mode = "Paused"
)
