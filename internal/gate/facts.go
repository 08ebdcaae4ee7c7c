// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Facts is everything that a decision about one node is based on. Facts are shared
// between decisions and must not be modified.
type Facts struct {
	// Node is the node that the decision is about.
	Node Node
	// Boot is what was observed about the start of the node's current boot.
	Boot Boot
	// Zone counts the nodes in the node's zone, including the node itself.
	Zone Zone
	// SilentSince is when an unreachable node was observed to become unreachable, by the
	// controller's clock. Zero if that was not observed.
	SilentSince time.Time
	// ReadySince is when the node was observed to become Ready, by the controller's clock:
	// the node's clock may be slow. Zero if that was not observed.
	ReadySince time.Time
	// DaemonSets contains the DaemonSets of all namespaces that a signal reads.
	DaemonSets *DaemonSets
	// Pods contains the pods on the node, by the query that selects them. If a query
	// has no key, its pods have not been observed yet and are unknown.
	Pods map[PodQuery][]Pod
	// PodsAt is the latest time at which Pods was certainly correct: a watch that has
	// stalled keeps showing an earlier state. Zero means now.
	PodsAt time.Time
	// Loading is true while something that is needed is being read for the first time
	// and no attempt has failed. What is unknown is then about to become known.
	Loading bool
	// CSINode is the node's CSINode.
	CSINode CSINode
	// ResourceSlices contains the node's ResourceSlices, by the name of their DRA
	// driver. If a driver has no key, its ResourceSlices have not been observed yet.
	ResourceSlices map[string][]ResourceSlice
	// Devices contains the node's slices of node-local pools with their devices, and
	// SharedPools all shared pools, by the query that finds them. If a query has no key, its
	// slices have not been observed yet.
	Devices     map[DeviceQuery][]DeviceSlice
	SharedPools map[DeviceQuery]SharedPools
	// DeviceTaintRules contains the DeviceTaintRules if devices are counted. Nil if they
	// have not been observed yet.
	DeviceTaintRules *DeviceTaintRules
	// Objects contains the objects that belong to the node, sorted by name, by the query
	// that finds them. If a query has no key, its objects have not been observed yet.
	Objects map[ObjectQuery][]Object
	// Part is true if the decision covers only some of the gates (see Parts). Records
	// and overrides of other gates are then ignored, instead of being treated as
	// orphaned.
	Part bool
	// Transient determines which taints are transient.
	Transient Transient
	// CompleteSources contains the sources of gates that exist, are readable and have
	// been read completely. Only a gate of a complete source can be known to be
	// deleted.
	CompleteSources map[string]bool
	// DeletedGates contains the gates that are known to have been deleted even though
	// their source is not complete.
	DeletedGates map[string]bool
	// Allowed contains the taints that the administrator allows nodegate to change.
	// Gates with other taints keep their state.
	Allowed AllowedTaints
	// Granted contains the gates that may close or adopt this node now although that is
	// rate-limited or budgeted (see Verdict.Wants).
	Granted map[string]bool
	// Shadow contains, for each gate in dry run, the record that would be on the node
	// (see Verdict.Shadow). If a shadow is lost, the dry run starts again as if the
	// gate had just entered it.
	Shadow map[string]string
	// Groups contains, by gate, what is known about the other nodes of the node's group,
	// for gates that open together (see Gate.Together).
	Groups map[string]Group
	// AllPods contains all pods on the node, if a verdict requested them (see
	// WantPods). Nil if they have not been listed.
	AllPods *PodList
	// Lost contains, by gate, what is remembered about the signals of an open gate that
	// do not hold (see Verdict.Lost).
	Lost map[string][]Lost
	// LeftSince contains, by gate, the time since which the gate has no longer selected
	// this member (see Verdict.LeftSince).
	LeftSince map[string]time.Time
	// GroupWaits contains, by gate, the time since which the group of an open node has
	// been incomplete (see Verdict.GroupWait).
	GroupWaits map[string]GroupWait
	// Steady contains, by gate, the time since which its signals have been in the state
	// that opens it (see Verdict.Steady).
	Steady map[string]Steady
}

// Node contains the parts of a Node that decisions depend on.
type Node struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	// BootID identifies the node's boot. Empty if the kubelet has not reported it.
	BootID string
	// RawBootID is the boot ID as the kubelet has reported it, if that is not UTF-8, and
	// otherwise empty. BootID then contains replacement characters, like a record.
	RawBootID string
	// Labels are the node's labels.
	Labels labels.Set
	// HasAnnotations reports whether the Node has any annotations.
	HasAnnotations bool
	// Annotations contains the annotations that some signal reads.
	Annotations map[string]string
	// Allocatable contains the resources that some signal reads.
	Allocatable map[string]resource.Quantity
	// Info contains the fields of the node's nodeInfo that some signal reads, by their
	// names in the API. Empty fields are omitted.
	Info map[string]string
	// Records contains the records on the node, by gate.
	Records map[string]string
	// Overrides contains the overrides on the node, by gate.
	Overrides map[string]string
	// Taints contains all of the node's taints, in order.
	Taints []corev1.Taint
	// Conditions contains the node's conditions.
	Conditions []Condition
	// ShuttingDown is true while the node announces its shutdown.
	ShuttingDown bool
}

// Condition is a node condition.
type Condition struct {
	Type       string
	Status     corev1.ConditionStatus
	Heartbeat  time.Time
	Transition time.Time
}

// Condition returns the node's condition of the given type, and whether it exists.
func (n *Node) Condition(conditionType string) (Condition, bool) {
	for i := range n.Conditions {
		if n.Conditions[i].Type == conditionType {
			return n.Conditions[i], true
		}
	}
	return Condition{}, false
}

// Zone returns the name of the node's zone. Nodes without a zone label form one zone,
// "".
func (n *Node) Zone() string { return n.Labels[corev1.LabelTopologyZone] }

// taint returns the index of the taint with the given key and effect, or -1.
func (n *Node) taint(key string, effect corev1.TaintEffect) int {
	for i := range n.Taints {
		if n.Taints[i].Key == key && n.Taints[i].Effect == effect {
			return i
		}
	}
	return -1
}

// Zone counts the nodes of one zone.
type Zone struct {
	// Nodes is the number of nodes in the zone.
	Nodes int
	// Silent is the number of nodes in the zone that are unreachable.
	Silent int
}

// If more than partitionPercent of the nodes are unreachable in a zone with at least
// partitionMinNodes nodes, a network partition is more likely than the failure of so
// many nodes. The threshold is that of Kubernetes' node lifecycle controller
// (--unhealthy-zone-threshold).
const (
	partitionMinNodes = 3
	partitionPercent  = 55
)

// Partitioned reports whether so many nodes of the zone are unreachable that this
// proves nothing about an individual node.
func (z Zone) Partitioned() bool {
	return z.Nodes >= partitionMinNodes && z.Silent*100 > z.Nodes*partitionPercent
}

// PodQuery selects the pods of a namespace that match a label selector in its canonical
// text form.
type PodQuery struct {
	Namespace string
	Selector  string
	// Annotation is the key of the annotation that marks pods as ready. Empty if there
	// is none.
	Annotation string
	// Runs is true if the pods run once (see Pod.Run).
	Runs bool
}

// Pod contains the parts of a Pod that decisions depend on.
type Pod struct {
	UID types.UID
	// Name is the namespace and name of the pod: namespace/name.
	Name string
	// Owner is the UID of the pod's controller.
	Owner   types.UID
	Created time.Time
	// Ready is the status of the pod's Ready condition. ReadySince is its last
	// transition time.
	Ready      bool
	ReadySince time.Time
	// MarkedSince is the time at which the query's annotation was last written with the
	// value that marks the pod as ready. Zero while the pod is not marked.
	MarkedSince time.Time
	// Terminating is true once the deletion of the pod has been requested.
	Terminating      bool
	TerminatingSince time.Time
	// Finished is true if the pod has succeeded or failed and will not run again.
	Finished bool
	// Mirror is true for a mirror pod. A kubelet creates mirror pods, with any labels.
	Mirror bool
	// Unlabelled is true if the pod lacks the labels that the DaemonSet controller adds
	// to every pod that it creates. A DaemonSet may still own such a pod: it adopts
	// pods that match its selector, and any user who creates a pod can specify an
	// owner.
	Unlabelled bool
	// Run is how far the pod has come, if its query has Runs.
	Run Run
	// Incarnation identifies the pod together with its current containers. It changes
	// when a container is started again.
	Incarnation Incarnation
}

// CSINode contains the parts of a CSINode that decisions depend on: the CSI drivers
// that a kubelet has registered. A CSINode survives reboots and, for a while, its Node.
type CSINode struct {
	// Observed reports whether CSINodes are observed. If they are, a node without a
	// CSINode has no drivers and no owner here.
	Observed bool
	// Owner is the UID of the Node that owns the CSINode.
	Owner types.UID
	// Drivers contains the registered drivers. The value reports whether the driver's
	// volume limit is known.
	Drivers map[string]bool
}

// ResourceSlice contains the parts of a ResourceSlice that decisions depend on. It
// describes some of the devices that a DRA driver offers on a node.
type ResourceSlice struct {
	Name string
	// Owner is the UID of the Node that owns the slice. Empty if there is no owner.
	Owner types.UID
	// Pool is the name of the pool that the slice belongs to.
	Pool string
	// Generation is the generation of the pool that the slice describes.
	Generation int64
	// Count is the number of slices that the pool has in that generation.
	Count int64
}

// DaemonSets is an immutable snapshot of DaemonSets.
type DaemonSets struct {
	// Observed contains the namespaces whose DaemonSets have all been observed.
	Observed map[string]bool
	// Items contains the DaemonSets, sorted by namespace and name.
	Items []DaemonSet
}

// DaemonSet contains the parts of a DaemonSet that decisions depend on.
type DaemonSet struct {
	Namespace string
	Name      string
	UID       types.UID
	Labels    labels.Set
	// Pods is the query that selects the DaemonSet's pods. It may select others as
	// well.
	Pods PodQuery
	// PodLabels contains the labels of the pod template.
	PodLabels labels.Set
	// NodeName is the node that the pod template names, if any.
	NodeName string
	// Affinity is the pod template's node selector and required node affinity.
	Affinity nodeaffinity.RequiredNodeAffinity
	// Tolerations contains the tolerations of the pod template and those that every
	// daemon pod gets.
	Tolerations []corev1.Toleration
	// Unprobed is true if the pod template has no readiness gate, and none of its
	// containers has a readiness or startup probe. The pods are then ready as soon as they
	// run.
	Unprobed bool
	// RollingOut is true while pods of an older template are being replaced on any node, or
	// one is yet to be created.
	RollingOut bool
	// Deleting is true while the DaemonSet is being deleted. The DaemonSet controller then
	// creates no pods, and does not update the status.
	Deleting bool
	// Surges is true if the DaemonSet controller may keep two pods on a node during a
	// rollout. Otherwise, it deletes all pods but the oldest.
	Surges bool
}

// String returns the namespace and name of the DaemonSet: namespace/name.
func (ds *DaemonSet) String() string { return ds.Namespace + "/" + ds.Name }
