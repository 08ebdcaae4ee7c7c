// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ReadingReason says why a signal, or the node as a whole, reads as it does.
// It stands in a gate's status and in explanations.
type ReadingReason string

// Reasons of signals that look at pods.
const (
	// ReadingReady means that the required pods are ready.
	ReadingReady ReadingReason = "PodReady"
	// ReadingPodMissing means that there is no such pod on the node.
	ReadingPodMissing ReadingReason = "PodMissing"
	// ReadingPodNotReady means that the pod is not ready.
	ReadingPodNotReady ReadingReason = "PodNotReady"
	// ReadingPodTerminating means that the pod is going away.
	ReadingPodTerminating ReadingReason = "PodTerminating"
	// ReadingStaleEvidence means that the pod is known to have been ready only
	// before the current boot, or before the current Node.
	ReadingStaleEvidence ReadingReason = "StaleEvidence"
	// ReadingDaemonSetNotFound means that the DaemonSet does not exist.
	ReadingDaemonSetNotFound ReadingReason = "DaemonSetNotFound"
	// ReadingDaemonSetNotEligible means that the DaemonSet does not run on this
	// node: its node selector, affinity or tolerations exclude it.
	ReadingDaemonSetNotEligible ReadingReason = "DaemonSetNotEligible"
	// ReadingDaemonDoesNotTolerateGate means that the daemon waits for the gate,
	// and the gate for the daemon.
	ReadingDaemonDoesNotTolerateGate ReadingReason = "DaemonDoesNotTolerateGate"
	// ReadingDaemonsReady means that every selected DaemonSet that belongs on the
	// node has its ready pod there.
	ReadingDaemonsReady ReadingReason = "DaemonsReady"
	// ReadingNoDaemonSetBelongs means that no selected DaemonSet belongs on the
	// node, so that there is nothing to wait for.
	ReadingNoDaemonSetBelongs ReadingReason = "NoDaemonSetBelongs"
	// ReadingNoDaemonSetSelected means that there is no such DaemonSet at all.
	ReadingNoDaemonSetSelected ReadingReason = "NoDaemonSetSelected"
	// ReadingNodeBeingSetUp means that no selected DaemonSet belongs on the node
	// yet, while its labels may still be on their way.
	ReadingNodeBeingSetUp ReadingReason = "NodeBeingSetUp"
)

// Reasons of signals that look at the Node itself.
const (
	// ReadingMatches means that the condition, label or annotation matches.
	ReadingMatches ReadingReason = "Matches"
	// ReadingMissing means that the node does not have it.
	ReadingMissing ReadingReason = "Missing"
	// ReadingDiffers means that the node has it with another status or value.
	ReadingDiffers ReadingReason = "Differs"
)

// Reasons that concern any signal.
const (
	// ReadingNotObserved means that what the signal looks at is not observed yet.
	ReadingNotObserved ReadingReason = "NotObserved"
)

// Reasons why no signal can open a gate on a node at present.
const (
	// ReadingNodeSilent means that the node's Ready condition is Unknown: what is
	// known of the node is old.
	ReadingNodeSilent ReadingReason = "NodeSilent"
	// ReadingNodeShutdown means that the node has announced its shutdown.
	ReadingNodeShutdown ReadingReason = "NodeShutdown"
	// ReadingNodeSetup means that a cloud controller or provisioner has not
	// finished setting the node up.
	ReadingNodeSetup ReadingReason = "NodeSetup"
	// ReadingReopenedByHand means that only a person opens the gate.
	ReadingReopenedByHand ReadingReason = "ReopenedByHand"
)
