// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"time"

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
	// Recheck is when the reading may change by the passing of time alone. Zero
	// when it does not.
	Recheck time.Time
	// Rollout is true when the signal does not hold only because a daemon is
	// being replaced by its own rollout.
	Rollout bool
}

// ofPod tells whether it is a pod that is missing or not ready.
func (r Reading) ofPod() bool {
	switch r.Reason {
	case v1alpha1.ReadingPodMissing, v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodTerminating:
		return true
	}
	return false
}

// messages say each reason in words; %s is the reading's subject.
var messages = map[v1alpha1.ReadingReason]string{
	v1alpha1.ReadingReady:                     "%s is ready",
	v1alpha1.ReadingPodMissing:                "%s has no pod on this node",
	v1alpha1.ReadingPodNotReady:               "pod %s is not ready",
	v1alpha1.ReadingPodTerminating:            "pod %s is terminating",
	v1alpha1.ReadingStaleEvidence:             "pod %s is known to be ready only from before this boot or this Node",
	v1alpha1.ReadingDaemonSetNotFound:         "DaemonSet %s does not exist: create it, or correct the gate",
	v1alpha1.ReadingDaemonSetNotEligible:      "DaemonSet %s does not run on this node: its node selector, affinity or tolerations exclude it",
	v1alpha1.ReadingDaemonDoesNotTolerateGate: "DaemonSet %s does not tolerate the gate that waits for it: add the toleration to its pod template",
	v1alpha1.ReadingDaemonsReady:              "every selected DaemonSet that belongs on this node has its ready pod here",
	v1alpha1.ReadingNoDaemonSetSelected:       "no DaemonSet matches its selector, so that it holds on every node",
	v1alpha1.ReadingNoDaemonSetBelongs:        "no selected DaemonSet belongs on this node",
	v1alpha1.ReadingNodeBeingSetUp:            "no selected DaemonSet belongs on this node yet, and the node is still being set up",
	v1alpha1.ReadingMatches:                   "%s matches",
	v1alpha1.ReadingMissing:                   "the node has no %s",
	v1alpha1.ReadingDiffers:                   "%s does not match",
	v1alpha1.ReadingNotObserved:               "%s is not observed yet",
	v1alpha1.ReadingNodeSilent:                "the node has stopped reporting (Ready is Unknown)",
	v1alpha1.ReadingNodeShutdown:              "the node has announced its shutdown",
	v1alpha1.ReadingNodeSetup:                 "the node is still being set up by its cloud provider or provisioner",
	v1alpha1.ReadingReopenedByHand:            "the gate is reopened by hand: see to the node, then remove the taint",
}

// Message says the reading in words.
func (r Reading) Message() string { return message(r.Reason, r.Subject) }

func message(reason v1alpha1.ReadingReason, subject string) string {
	format, ok := messages[reason]
	if !ok {
		return string(reason)
	}
	return strings.ReplaceAll(format, "%s", subject)
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
	// that are known so far.
	Needs(sets *DaemonSets) Needs
}

// Input is what a signal reads from.
type Input struct {
	*Facts
	// Taint is the gate's own taint.
	Taint v1alpha1.Taint
	// Trust tells which pods' readiness may be believed.
	Trust Trust
	Now   time.Time
}

// Needs is what must be observed for a signal.
type Needs struct {
	// DaemonSetNamespaces are the namespaces whose DaemonSets are needed.
	DaemonSetNamespaces []string
	// Pods are the pods that are needed.
	Pods []PodQuery
	// Annotations are the keys of node annotations that are needed.
	Annotations []string
}
