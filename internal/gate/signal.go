// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strconv"
	"strings"
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

// ofPod reports whether the reason concerns a pod that does not count as ready.
func (r Reading) ofPod() bool {
	switch r.Reason {
	case v1alpha1.ReadingPodMissing, v1alpha1.ReadingPodNotByDaemonSet, v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodReadyTooBriefly, v1alpha1.ReadingPodNotAnnotated, v1alpha1.ReadingPodTerminating:
		return true
	}
	return false
}

// messages contains a message for each reason. %s is the reading's subject.
var messages = map[v1alpha1.ReadingReason]string{
	v1alpha1.ReadingReady:                     "%s is ready",
	v1alpha1.ReadingPodMissing:                "%s has no pod on this node",
	v1alpha1.ReadingPodNotByDaemonSet:         "pod %s is owned by the DaemonSet but was not created by the DaemonSet controller: delete the pod, so that the DaemonSet controller creates one",
	v1alpha1.ReadingPodNotReady:               "pod %s is not ready",
	v1alpha1.ReadingPodReadyTooBriefly:        "pod %s is ready, but has not been ready for the signal's minReadySeconds",
	v1alpha1.ReadingPodNotAnnotated:           `pod %s does not carry the gate's readyAnnotation with the value "true"`,
	v1alpha1.ReadingPodTerminating:            "pod %s is terminating",
	v1alpha1.ReadingStaleEvidence:             "the evidence that pod %s is ready predates the current boot or the current Node",
	v1alpha1.ReadingStaleAnnotation:           "the readyAnnotation of pod %s predates the current boot or the current Node: make its program remove the annotation when it starts, or delete the pod",
	v1alpha1.ReadingDaemonSetNotFound:         "DaemonSet %s does not exist: create it, or correct the gate",
	v1alpha1.ReadingDaemonSetNotEligible:      "DaemonSet %s does not run on this node: its node selector, affinity or tolerations exclude the node",
	v1alpha1.ReadingDaemonDoesNotTolerateGate: "DaemonSet %s, a taint of the gate that waits for it: add the toleration to its pod template",
	v1alpha1.ReadingDaemonNotProbed:           "the pods of DaemonSet %s have no readinessProbe, so they are ready as soon as they run",
	v1alpha1.ReadingDaemonsReady:              "every selected DaemonSet that should run on this node has a ready pod here",
	v1alpha1.ReadingNoDaemonSetSelected:       "no DaemonSet matches its selector, so it holds on every node",
	v1alpha1.ReadingNoDaemonSetBelongs:        "no selected DaemonSet should run on this node",
	v1alpha1.ReadingNodeBeingSetUp:            "no selected DaemonSet should run on this node yet, and the node is still being set up",
	v1alpha1.ReadingMatches:                   "%s matches",
	v1alpha1.ReadingMissing:                   "the node has no %s",
	v1alpha1.ReadingDiffers:                   "%s does not match",
	v1alpha1.ReadingInsufficient:              "%s is less than the gate requires",
	v1alpha1.ReadingFormerNode:                "%s belongs to a former Node of the same name",
	v1alpha1.ReadingNotOwned:                  "%s is not owned by a Node, so it may belong to a former Node of the same name",
	v1alpha1.ReadingPoolIncomplete:            "%s is incomplete",
	v1alpha1.ReadingExpressionFailed:          "the expression could not be evaluated on this node: %s",
	v1alpha1.ReadingNoneHolds:                 "no alternative holds: %s",
	v1alpha1.ReadingStaleHeartbeat:            "%s has no recent heartbeat from the current boot",
	v1alpha1.ReadingTooBriefly:                "%s matches, but has not matched for long enough",
	v1alpha1.ReadingNoTransitionTime:          "%s matches, but has no transition time",
	v1alpha1.ReadingNotObserved:               "%s is not observed yet",
	v1alpha1.ReadingInvalidSpec:               "the gate's signals are invalid, so only its deadline or its deletion opens it: see its condition Accepted",
	v1alpha1.ReadingNodeSilent:                "the node is unreachable (Ready is Unknown)",
	v1alpha1.ReadingNodeShutdown:              "the node has announced its shutdown (see its conditions Ready and GracefulNodeShutdownInProgress)",
	v1alpha1.ReadingNodeSetup:                 "the node is still being set up by its cloud provider or provisioner",
	v1alpha1.ReadingMinClosed:                 "the signals would open the gate, but it stays closed until %s (timing.minClosedSeconds)",
	v1alpha1.ReadingOpenAfter:                 "the signals have not been in the state that opens the gate for long enough: it stays closed until %s (timing.openAfterSeconds)",
	v1alpha1.ReadingPaused:                    "the gate is paused and keeps its state (mode)",
	v1alpha1.ReadingOverridden:                "a manual override keeps the gate closed on the node until %s (the Node's annotation override.nodegate.dev/ followed by the gate's name)",
	v1alpha1.ReadingReopenedByHand:            "the gate opens only when a user removes its taint (reopen: Manual): repair the node, then remove the taint",
}

// Message returns a human-readable description of the reading.
func (r Reading) Message() string { return message(r.Reason, r.Subject) }

func message(reason v1alpha1.ReadingReason, subject string) string {
	format, ok := messages[reason]
	if !ok {
		return string(reason)
	}
	return strings.ReplaceAll(format, "%s", Printable(subject))
}

// Printable returns the text as a single line in which non-printable characters, such
// as newlines and terminal control characters, are escaped as in Go. Nodes control some
// of their data and must not be able to forge output.
func Printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Signal is a compiled signal. Implementations are immutable and safe for concurrent
// use.
type Signal interface {
	// Read returns the reading of the signal on a node. It performs no I/O.
	Read(in Input) Reading
	// Evidence returns the pods that the signal's state depends on, whether they are
	// ready or not. It returns false if they have not been observed.
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
	// Lasting contains the node's taints that are not transient (see Transient),
	// computed once for all signals.
	Lasting []corev1.Taint
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
	// ResourceSlices contains the names of the DRA drivers of the ResourceSlices.
	ResourceSlices []string
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
	n.Heartbeats = n.Heartbeats || other.Heartbeats
	n.Conditions = append(n.Conditions, other.Conditions...)
	n.AllConditions = n.AllConditions || other.AllConditions
	n.Taints = n.Taints || other.Taints
}
