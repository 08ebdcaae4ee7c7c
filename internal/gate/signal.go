// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// State is the state of a signal. The zero value is Unknown.
type State uint8

const (
	// Unknown means that the state cannot be determined. It never opens and never
	// closes a gate.
	Unknown State = iota
	// NotYet means that the signal does not hold.
	NotYet
	// Holds means that the signal holds.
	Holds
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Holds:
		return "Holds"
	case NotYet:
		return "NotYet"
	default:
		return "Unknown"
	}
}

// ParseState returns the state with this name, or Unknown.
func ParseState(name string) State {
	for _, s := range []State{NotYet, Holds} {
		if name == s.String() {
			return s
		}
	}
	return Unknown
}

// And returns the combined state of signals: NotYet if one does not hold, otherwise Unknown
// if one is unknown.
func (s State) And(other State) State {
	switch {
	case s == NotYet || other == NotYet:
		return NotYet
	case s == Unknown || other == Unknown:
		return Unknown
	}
	return Holds
}

// IsAwaited reports whether a closed gate waits for a signal in this state, given the
// combined state of all its signals. An openWhen gate waits for each signal that does not
// hold. A closeWhen gate waits for the signals that are unknown or, if all hold, for any of
// them to stop holding. If one does not hold, something else keeps it closed.
func (s State) IsAwaited(closeWhen bool, all State) bool {
	if closeWhen {
		return s == all && s != NotYet
	}
	return s != Holds
}

// Reading is the result of reading a signal on a node.
type Reading struct {
	State  State
	Reason v1alpha1.ReadingReason
	// Subject is the object that the reason refers to: a pod, a DaemonSet, a key.
	Subject string
	// Since is the time since which the signal has had this state, according to the
	// API. Zero if the API does not report it.
	Since time.Time
	// Longer is true if the signal may have had this state for longer than Since: one
	// of several alternatives is sufficient, and the API does not report a time for one
	// that holds.
	Longer bool
	// Alternative is true if this is the reading of one of several alternatives. If
	// Since changes, it may be because another one is read, not because the state was
	// interrupted.
	Alternative bool
	// Recheck is the time at which the reading may change without a change of the
	// facts. Zero if there is no such time.
	Recheck time.Time
	// Rollout is true if the signal does not hold only because a daemon is being
	// replaced by its own rollout.
	Rollout bool
	// Lacks is true if a required pod is missing although Reason is a different one,
	// because several readings were combined (see LacksPod).
	Lacks bool
	// Blind is true if something has not been observed although Reason is a different
	// one, because several readings were combined (see Unseen).
	Blind bool
}

// ofPod reports whether the reason concerns a pod that does not count as ready, or may do
// so, as that of several alternatives.
func (r Reading) ofPod() bool {
	switch r.Reason {
	case v1alpha1.ReadingPodMissing, v1alpha1.ReadingPodFinished, v1alpha1.ReadingPodStatic, v1alpha1.ReadingPodNotByDaemonSet, v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodReadyTooBriefly, v1alpha1.ReadingPodNotAnnotated, v1alpha1.ReadingPodTerminating, v1alpha1.ReadingNoneHolds:
		return true
	}
	return false
}

// Signal is a compiled signal. Implementations are immutable and safe for concurrent
// use.
type Signal interface {
	// Read returns the reading of the signal on a node. It performs no I/O.
	Read(in Input) Reading
	// Evidence returns the pods that the signal's state depends on, whether they are
	// ready or not. It returns false if they have not been observed, also because it is not
	// known which pods these are.
	Evidence(f *Facts) ([]Pod, bool)
	// ProvesBoot reports whether the signal can distinguish evidence of the node's
	// current boot from older evidence.
	ProvesBoot() bool
	// Needs returns what must be observed for the signal, given the known DaemonSets.
	// The gate is not decided again when something changes that its signals do not need
	// (see Parts).
	Needs(sets *DaemonSets) Needs
}

// Input is what a signal reads.
type Input struct {
	*Facts
	// Taint is the gate's own taint that is, or would be, on the node.
	Taint v1alpha1.Taint
	// OtherTaint is the gate's other taint. The same as Taint if the gate has only one.
	OtherTaint v1alpha1.Taint
	// Lasting contains the node's taints that are not transient (see Facts.Lasting),
	// computed once for all signals.
	Lasting []corev1.Taint
	// Completed contains the successful runs of the current boot that the gate's record
	// contains (see Remembering).
	Completed Completions
	// Open reports whether the gate is open on the node.
	Open bool
	// Trust determines which pods' readiness is accepted as evidence.
	Trust Trust
	Now   time.Time
}

// Needs describes what must be observed for a signal because the signal reads it. The
// labels, boot and liveness of a Node are always observed, and every signal may read
// them.
type Needs struct {
	// DaemonSetNamespaces contains the namespaces of the DaemonSets.
	DaemonSetNamespaces []string
	// Pods contains the queries that select the pods.
	Pods []PodQuery
	// Annotations contains the keys of node annotations.
	Annotations []string
	// Resources contains the names of resources in the nodes' allocatable.
	Resources []string
	// NodeInfo contains the names of fields of the nodes' nodeInfo.
	NodeInfo []string
	// CSINodes reports whether CSINodes are needed.
	CSINodes bool
	// ResourceSlices contains the names of the DRA drivers whose node-local ResourceSlices
	// are needed without their devices.
	ResourceSlices []string
	// Devices contains the queries for shared pools and for devices that are counted. If
	// devices are counted, DeviceTaintRules are needed as well.
	Devices []DeviceQuery
	// Objects contains the queries that find objects of other kinds.
	Objects []ObjectQuery
	// Heartbeats reports whether the heartbeats of conditions are needed. Each
	// heartbeat is then a change.
	Heartbeats bool
	// Conditions contains the types of the conditions that the signal reads.
	// AllConditions and Taints report whether it reads all conditions or all taints.
	// All of these are always observed. Taints that determine which daemons belong on
	// the node need not be included.
	Conditions            []string
	AllConditions, Taints bool
}

// Add adds the needs of another signal.
func (n *Needs) Add(other Needs) {
	n.DaemonSetNamespaces = append(n.DaemonSetNamespaces, other.DaemonSetNamespaces...)
	n.Pods = append(n.Pods, other.Pods...)
	n.Annotations = append(n.Annotations, other.Annotations...)
	n.Resources = append(n.Resources, other.Resources...)
	n.NodeInfo = append(n.NodeInfo, other.NodeInfo...)
	n.CSINodes = n.CSINodes || other.CSINodes
	n.ResourceSlices = append(n.ResourceSlices, other.ResourceSlices...)
	n.Devices = append(n.Devices, other.Devices...)
	n.Objects = append(n.Objects, other.Objects...)
	n.Heartbeats = n.Heartbeats || other.Heartbeats
	n.Conditions = append(n.Conditions, other.Conditions...)
	n.AllConditions = n.AllConditions || other.AllConditions
	n.Taints = n.Taints || other.Taints
}
