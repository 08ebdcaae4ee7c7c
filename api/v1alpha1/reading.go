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
	// ReadingPodReadyTooBriefly means that the pod is ready, and has not been for
	// as long as the signal's minReadySeconds asks.
	ReadingPodReadyTooBriefly ReadingReason = "PodReadyTooBriefly"
	// ReadingPodNotAnnotated means that the pod does not carry the annotation
	// that makes it ready.
	ReadingPodNotAnnotated ReadingReason = "PodNotAnnotated"
	// ReadingPodTerminating means that the pod is going away.
	ReadingPodTerminating ReadingReason = "PodTerminating"
	// ReadingStaleEvidence means that the pod is known to have been ready only
	// before the current boot, or before the current Node.
	ReadingStaleEvidence ReadingReason = "StaleEvidence"
	// ReadingStaleAnnotation means that the pod has carried the annotation that
	// makes it ready since before the current boot, or before the current Node.
	ReadingStaleAnnotation ReadingReason = "StaleAnnotation"
	// ReadingDaemonSetNotFound means that the DaemonSet does not exist.
	ReadingDaemonSetNotFound ReadingReason = "DaemonSetNotFound"
	// ReadingDaemonSetNotEligible means that the DaemonSet does not run on this
	// node: its node selector, affinity or tolerations exclude it.
	ReadingDaemonSetNotEligible ReadingReason = "DaemonSetNotEligible"
	// ReadingDaemonDoesNotTolerateGate means that the daemon waits for the gate,
	// and the gate for the daemon.
	ReadingDaemonDoesNotTolerateGate ReadingReason = "DaemonDoesNotTolerateGate"
	// ReadingDaemonNotProbed means that the daemon's pods are ready as soon as
	// they run, because they have no readiness probe.
	ReadingDaemonNotProbed ReadingReason = "DaemonNotProbed"
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
	// ReadingMatches means that the node has what the signal looks for.
	ReadingMatches ReadingReason = "Matches"
	// ReadingMissing means that the node does not have it.
	ReadingMissing ReadingReason = "Missing"
	// ReadingDiffers means that the node has it with another status or value.
	ReadingDiffers ReadingReason = "Differs"
	// ReadingInsufficient means that the node has less of it than asked for.
	ReadingInsufficient ReadingReason = "Insufficient"
	// ReadingFormerNode means that it is known only from a former Node of the same
	// name.
	ReadingFormerNode ReadingReason = "FormerNode"
	// ReadingNotOwned means that it does not tell which Node it is of.
	ReadingNotOwned ReadingReason = "NotOwned"
	// ReadingPoolIncomplete means that not all of a pool of devices has been
	// published yet.
	ReadingPoolIncomplete ReadingReason = "PoolIncomplete"
	// ReadingStaleHeartbeat means that nobody has confirmed the condition lately,
	// or not in the current boot.
	ReadingStaleHeartbeat ReadingReason = "StaleHeartbeat"
	// ReadingTooBriefly means that the condition matches, and has not done so for
	// long enough.
	ReadingTooBriefly ReadingReason = "TooBriefly"
	// ReadingNoTransitionTime means that the condition matches, and that whoever
	// reports it does not tell since when.
	ReadingNoTransitionTime ReadingReason = "NoTransitionTime"
)

// Reasons of signals that are expressions.
const (
	// ReadingExpressionFailed means that the expression could not be evaluated on
	// this node, as where it reads a label that the node does not carry.
	ReadingExpressionFailed ReadingReason = "ExpressionFailed"
)

// Reasons that concern any signal.
const (
	// ReadingNotObserved means that what the signal looks at is not observed yet.
	ReadingNotObserved ReadingReason = "NotObserved"
	// ReadingNoneHolds means that no alternative of anyOf holds.
	ReadingNoneHolds ReadingReason = "NoneHolds"
)

// Reasons why no signal can open a gate on a node at present.
const (
	// ReadingInvalidSpec means that the gate's signals cannot be compiled.
	ReadingInvalidSpec ReadingReason = ReasonInvalidSpec
	// ReadingNodeSilent means that the node's Ready condition is Unknown: what is
	// known of the node is old.
	ReadingNodeSilent ReadingReason = "NodeSilent"
	// ReadingNodeShutdown means that the node has announced its shutdown.
	ReadingNodeShutdown ReadingReason = "NodeShutdown"
	// ReadingNodeSetup means that a cloud controller or provisioner has not
	// finished setting the node up.
	ReadingNodeSetup ReadingReason = "NodeSetup"
	// ReadingMinClosed means that the gate has not been closed for as long as
	// timing.minClosedSeconds asks.
	ReadingMinClosed ReadingReason = "MinClosed"
	// ReadingOpenAfter means that the signals have not said for as long as
	// timing.openAfterSeconds asks what opens the gate.
	ReadingOpenAfter ReadingReason = "OpenAfter"
	// ReadingReopenedByHand means that only a person opens the gate.
	ReadingReopenedByHand ReadingReason = "ReopenedByHand"
	// ReadingPaused means that the gate is paused.
	ReadingPaused ReadingReason = "Paused"
	// ReadingOverridden means that a person has the gate closed on the node for a
	// time, whatever the signals say.
	ReadingOverridden ReadingReason = "Overridden"
)
