// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// State is what a signal says. The zero value is Unknown.
type State uint8

const (
	// Unknown means that there is nothing to go by. It never opens and never closes a gate.
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

// Reading is what a signal says of a node at one moment.
type Reading struct {
	State  State
	Reason v1alpha1.ReadingReason
	// Subject names what the reason is about: a pod, a DaemonSet, a key.
	Subject string
	// Since is when the signal came to say so, as the API tells. Zero when the
	// API does not tell.
	Since time.Time
	// Longer is true when the signal may have said so for longer, because one of
	// several things will do, and of one that does the API does not tell since when.
	Longer bool
	// Recheck is when the reading may change by the passing of time alone. Zero
	// when it does not.
	Recheck time.Time
	// Rollout is true when the signal does not hold only because a daemon is
	// being replaced by its own rollout.
	Rollout bool
	// Lacks is true when a required pod is missing although the reason is another,
	// because several readings were put together (see LacksPod).
	Lacks bool
	// Blind is true when something has not been observed, likewise (see Unseen).
	Blind bool
}

// ofPod tells whether it is a pod that is missing, not ready, or only just ready.
func (r Reading) ofPod() bool {
	switch r.Reason {
	case v1alpha1.ReadingPodMissing, v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodReadyTooBriefly, v1alpha1.ReadingPodNotAnnotated, v1alpha1.ReadingPodTerminating:
		return true
	}
	return false
}

// messages say each reason in words; %s is the reading's subject.
var messages = map[v1alpha1.ReadingReason]string{
	v1alpha1.ReadingReady:                     "%s is ready",
	v1alpha1.ReadingPodMissing:                "%s has no pod on this node",
	v1alpha1.ReadingPodNotReady:               "pod %s is not ready",
	v1alpha1.ReadingPodReadyTooBriefly:        "pod %s is ready, and has not been for the signal's minReadySeconds",
	v1alpha1.ReadingPodNotAnnotated:           `pod %s does not carry the gate's readyAnnotation with the value "true"`,
	v1alpha1.ReadingPodTerminating:            "pod %s is terminating",
	v1alpha1.ReadingStaleEvidence:             "pod %s is known to be ready only from before this boot or this Node",
	v1alpha1.ReadingStaleAnnotation:           "pod %s has carried the gate's readyAnnotation since before this boot or this Node: have its program take the annotation away when it starts, or delete the pod",
	v1alpha1.ReadingDaemonSetNotFound:         "DaemonSet %s does not exist: create it, or correct the gate",
	v1alpha1.ReadingDaemonSetNotEligible:      "DaemonSet %s does not run on this node: its node selector, affinity or tolerations exclude it",
	v1alpha1.ReadingDaemonDoesNotTolerateGate: "DaemonSet %s, a taint of the gate that waits for it: add the toleration to its pod template",
	v1alpha1.ReadingDaemonNotProbed:           "the pods of DaemonSet %s have no readinessProbe, so that they are ready as soon as they run",
	v1alpha1.ReadingDaemonsReady:              "every selected DaemonSet that belongs on this node has its ready pod here",
	v1alpha1.ReadingNoDaemonSetSelected:       "no DaemonSet matches its selector, so that it holds on every node",
	v1alpha1.ReadingNoDaemonSetBelongs:        "no selected DaemonSet belongs on this node",
	v1alpha1.ReadingNodeBeingSetUp:            "no selected DaemonSet belongs on this node yet, and the node is still being set up",
	v1alpha1.ReadingMatches:                   "%s matches",
	v1alpha1.ReadingMissing:                   "the node has no %s",
	v1alpha1.ReadingDiffers:                   "%s does not match",
	v1alpha1.ReadingInsufficient:              "%s is less than the gate asks for",
	v1alpha1.ReadingFormerNode:                "%s belongs to a former Node of this name",
	v1alpha1.ReadingNotOwned:                  "%s is owned by no Node, so that it may be a former one's",
	v1alpha1.ReadingPoolIncomplete:            "%s is incomplete",
	v1alpha1.ReadingExpressionFailed:          "the expression has no answer on this node: %s",
	v1alpha1.ReadingNoneHolds:                 "none holds: %s",
	v1alpha1.ReadingStaleHeartbeat:            "%s has no heartbeat that is recent enough and of this boot",
	v1alpha1.ReadingTooBriefly:                "%s matches, but not for long enough yet",
	v1alpha1.ReadingNoTransitionTime:          "%s matches, and does not tell since when",
	v1alpha1.ReadingNotObserved:               "%s is not observed yet",
	v1alpha1.ReadingInvalidSpec:               "the gate's signals are invalid, so that nothing opens it but its deadline or deletion: see its condition Accepted",
	v1alpha1.ReadingNodeSilent:                "the node has stopped reporting (Ready is Unknown)",
	v1alpha1.ReadingNodeShutdown:              "the node has announced its shutdown (see its conditions Ready and GracefulNodeShutdownInProgress)",
	v1alpha1.ReadingNodeSetup:                 "the node is still being set up by its cloud provider or provisioner",
	v1alpha1.ReadingMinClosed:                 "the signals would open the gate, which stays closed until %s (timing.minClosedSeconds)",
	v1alpha1.ReadingOpenAfter:                 "the signals have not said for long enough what opens the gate: it stays closed until %s (timing.openAfterSeconds)",
	v1alpha1.ReadingPaused:                    "the gate is paused, and stays as it is (mode)",
	v1alpha1.ReadingOverridden:                "somebody has the gate closed on the node until %s (the Node's annotation override.nodegate.dev/ and the gate's name)",
	v1alpha1.ReadingReopenedByHand:            "the gate is reopened by hand: see to the node, then remove the taint",
}

// Message says the reading in words.
func (r Reading) Message() string { return message(r.Reason, r.Subject) }

func message(reason v1alpha1.ReadingReason, subject string) string {
	format, ok := messages[reason]
	if !ok {
		return string(reason)
	}
	return strings.ReplaceAll(format, "%s", Printable(subject))
}

// Printable is a text of one line in which what cannot be seen, such as the end of a
// line or what steers a terminal, is written as Go writes it. Nodes say of themselves
// what they like, and may not forge what people read.
func Printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Signal is one compiled signal. Implementations are immutable and safe for
// concurrent use.
type Signal interface {
	// Read says what the signal reads on a node. It does no I/O.
	Read(in Input) Reading
	// Evidence returns the pods whose state the signal rests on, ready or not.
	// It is false when they have not been observed.
	Evidence(f *Facts) ([]Pod, bool)
	// ProvesBoot tells whether the signal can tell what belongs to the node's
	// current boot from what is older.
	ProvesBoot() bool
	// Needs returns what must be observed for the signal, given the DaemonSets
	// that are known so far. A gate is not decided about when something has changed
	// that its signals do not need (see Parts).
	Needs(sets *DaemonSets) Needs
}

// Input is what a signal reads from.
type Input struct {
	*Facts
	// Taint is the gate's own taint, as it is or would be on the node.
	Taint v1alpha1.Taint
	// OtherTaint is the gate's own in another state. The same if it has but one.
	OtherTaint v1alpha1.Taint
	// Lasting are the node's lasting taints (see Transient), found once for all
	// signals.
	Lasting []corev1.Taint
	// Trust tells which pods' readiness may be believed.
	Trust Trust
	Now   time.Time
}

// Needs is what must be observed for a signal: what it looks at. Of a Node, labels,
// boot and whether it reports are always observed, and every signal may look at them.
type Needs struct {
	// DaemonSetNamespaces are the namespaces whose DaemonSets are needed.
	DaemonSetNamespaces []string
	// Pods are the pods that are needed.
	Pods []PodQuery
	// Annotations are the keys of node annotations that are needed.
	Annotations []string
	// Resources are the names of resources of the nodes' allocatable that are
	// needed.
	Resources []string
	// NodeInfo are the names of fields of the nodes' nodeInfo that are needed.
	NodeInfo []string
	// CSINodes tells whether the nodes' CSINodes are needed.
	CSINodes bool
	// ResourceSlices are the names of DRA drivers whose ResourceSlices are needed.
	ResourceSlices []string
	// Heartbeats tells whether the heartbeats of conditions are needed: each is
	// news, then.
	Heartbeats bool
	// Conditions are the types of conditions that are looked at, and AllConditions and
	// Taints tell whether all conditions or taints are. They are always observed. The
	// taints that say which daemons belong on the node need not be named.
	Conditions            []string
	AllConditions, Taints bool
}

// Add adds what is needed for something else.
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
