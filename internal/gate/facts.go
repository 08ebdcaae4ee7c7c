// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Facts is all that a decision about one node rests on. Facts are read only:
// whoever gathers them shares them between decisions.
type Facts struct {
	// Node is the node that the decision is about.
	Node Node
	// Zone counts the nodes of this node's zone, this one included.
	Zone Zone
	// DaemonSets are those of all namespaces that a signal looks at.
	DaemonSets *DaemonSets
	// Pods are the pods of this node, by the query that found them. A query
	// without a key has not been observed yet: its pods are unknown.
	Pods map[PodQuery][]Pod
	// CSINode is the node's CSINode.
	CSINode CSINode
	// ResourceSlices are the ResourceSlices of this node, by the name of their
	// DRA driver. A driver without a key has not been observed yet.
	ResourceSlices map[string][]ResourceSlice
	// Part is true where only some of the gates are decided about (see Parts). What
	// concerns others is left alone: it is not taken for that of a gate which is not
	// known.
	Part bool
	// Transient tells which taints come and go by themselves.
	Transient Transient
	// CompleteSources names the sources of gates that are present, readable and
	// fully read. Only a gate of a complete source can be known to be deleted.
	CompleteSources map[string]bool
	// DeletedGates names gates that are known to have been deleted although
	// their source is not complete.
	DeletedGates map[string]bool
	// Allowed are the taints that the administrator lets nodegate change. Whatever
	// concerns another one stays as it is.
	Allowed AllowedTaints
	// Granted names the gates that may close or adopt this node now although
	// that is paced or budgeted (see Verdict.Wants).
	Granted map[string]bool
	// Shadow remembers, by gate in dry run, the record that would stand on the node
	// (see Verdict.Shadow). What is lost has the dry run begin again, as if the gate
	// had come into it just now.
	Shadow map[string]string
	// AllPods are all pods of the node, where a verdict wanted to see them (see
	// WantPods). Nil when they have not been listed.
	AllPods *PodList
	// LostSince remembers, by gate, since when an open gate's signals have not
	// held (see Verdict.LostSince). It bridges what has no time in the API.
	LostSince map[string]time.Time
	// RolloutSince remembers the same for signals that do not hold only because
	// of a rollout (see Verdict.RolloutSince).
	RolloutSince map[string]time.Time
	// Steady remembers, by gate, since when its signals have said what opens it
	// (see Verdict.Steady).
	Steady map[string]Steady
}

// Node is what a decision needs to know of a Node.
type Node struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	// BootID identifies the node's boot. Empty when the kubelet has not told.
	BootID string
	// Labels are the node's labels.
	Labels labels.Set
	// HasAnnotations tells whether the Node has any annotation at all.
	HasAnnotations bool
	// Annotations are those that some signal looks at.
	Annotations map[string]string
	// Allocatable are the resources that some signal looks at.
	Allocatable map[string]resource.Quantity
	// Info are the fields of the node's nodeInfo that some signal looks at, by
	// their names in the API. One that is empty there is not here.
	Info map[string]string
	// Records are the gates' records as they stand on the node, by gate.
	Records map[string]string
	// Overrides are the overrides of gates as they stand on the node, by gate.
	Overrides map[string]string
	// Taints are all of the node's taints, in order.
	Taints []corev1.Taint
	// Conditions are the node's conditions.
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

// Condition returns the node's condition of a type.
func (n *Node) Condition(conditionType string) (Condition, bool) {
	for i := range n.Conditions {
		if n.Conditions[i].Type == conditionType {
			return n.Conditions[i], true
		}
	}
	return Condition{}, false
}

// optedOut tells whether the node is out of all gates.
func (n *Node) optedOut() bool { return n.Labels[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue }

// Zone returns the name of the node's zone; nodes without one share one.
func (n *Node) Zone() string { return n.Labels[corev1.LabelTopologyZone] }

// Silent tells whether the node has stopped reporting: its Ready condition is
// Unknown.
func (n *Node) Silent() bool {
	c, ok := n.Condition(string(corev1.NodeReady))
	return ok && c.Status == corev1.ConditionUnknown
}

// Reporting tells whether the node has reported and not fallen silent since.
func (n *Node) Reporting() bool {
	c, ok := n.Condition(string(corev1.NodeReady))
	return ok && c.Status != corev1.ConditionUnknown
}

// taint returns the index of the taint with a key and effect, or -1.
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
	// Nodes is how many nodes the zone has.
	Nodes int
	// Silent is how many of them are silent.
	Silent int
}

// A zone of at least partitionMinNodes nodes of which more than
// partitionPercent are silent looks like a partition of the network rather
// than like so many dead nodes. Kubernetes' node lifecycle controller draws
// the line at the same place (--unhealthy-zone-threshold).
const (
	partitionMinNodes = 3
	partitionPercent  = 55
)

// Partitioned tells whether so much of the zone is silent that silence proves
// nothing about a single node.
func (z Zone) Partitioned() bool {
	return z.Nodes >= partitionMinNodes && z.Silent*100 > z.Nodes*partitionPercent
}

// PodQuery names a set of pods: those of a namespace that a label selector, in
// its canonical text form, selects.
type PodQuery struct {
	Namespace string
	Selector  string
	// Annotation is the key of the annotation that marks pods as ready; empty
	// where none does.
	Annotation string
}

// Pod is what a decision needs to know of a Pod.
type Pod struct {
	UID types.UID
	// Name is the pod's namespace and name: namespace/name.
	Name string
	// Owner is the UID of the pod's controller.
	Owner   types.UID
	Created time.Time
	// Ready is the pod's Ready condition, and ReadySince its last transition.
	Ready      bool
	ReadySince time.Time
	// MarkedSince is when the annotation that the query names was last written
	// with the value that marks the pod as ready. Zero while it is not marked.
	MarkedSince time.Time
	// Terminating is set from the moment the pod's deletion was asked for.
	Terminating      bool
	TerminatingSince time.Time
	// Finished pods have succeeded or failed for good.
	Finished bool
	// Mirror pods are made by a kubelet, which may put any label on them.
	Mirror bool
	// Incarnation identifies the pod and its present containers: it changes when
	// a container is started anew.
	Incarnation Incarnation
}

// CSINode is what a decision needs to know of a CSINode: the CSI drivers that a
// kubelet has registered. It outlives reboots, and its Node for a while.
type CSINode struct {
	// Observed tells whether CSINodes are observed. A node without one then has
	// no drivers and no owner.
	Observed bool
	// Owner is the UID of the Node that the CSINode is of.
	Owner types.UID
	// Drivers tells of each registered driver whether its volume limit is known.
	Drivers map[string]bool
}

// ResourceSlice is what a decision needs to know of a ResourceSlice: a part of
// what a DRA driver offers on a node.
type ResourceSlice struct {
	Name string
	// Owner is the UID of the Node that the slice is of; empty where it names
	// none.
	Owner types.UID
	// Pool is the name of the pool that the slice is a part of.
	Pool string
	// Generation tells which state of the pool the slice describes.
	Generation int64
	// Count is how many slices the pool has in that generation.
	Count int64
}

// DaemonSets is a snapshot of DaemonSets, which does not change any more.
type DaemonSets struct {
	// Observed names the namespaces whose DaemonSets are all here.
	Observed map[string]bool
	// Items are sorted by namespace and name.
	Items []DaemonSet
}

// DaemonSet is what a decision needs to know of a DaemonSet.
type DaemonSet struct {
	Namespace string
	Name      string
	UID       types.UID
	Labels    labels.Set
	// Pods finds the DaemonSet's pods, and others with the same labels.
	Pods PodQuery
	// PodLabels are the pod template's labels.
	PodLabels labels.Set
	// NodeName is set when the pod template names one node.
	NodeName string
	// Affinity is the pod template's node selector and required node affinity.
	Affinity nodeaffinity.RequiredNodeAffinity
	// Tolerations are the pod template's, and those that every daemon pod gets.
	Tolerations []corev1.Toleration
	// Unprobed is true when none of the pod template's containers has a readiness
	// probe: the pods are ready as soon as they run.
	Unprobed bool
	// RollingOut is true while pods of an older template are being replaced.
	RollingOut bool
}

// String returns the DaemonSet's namespace and name: namespace/name.
func (ds *DaemonSet) String() string { return ds.Namespace + "/" + ds.Name }
