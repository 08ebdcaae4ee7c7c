// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ReadingReason is the reason for the reading of a signal, or of the node as a
// whole. It appears in a gate's status and in explanations.
type ReadingReason string

// Reasons of signals that read pods.
const (
	// ReadingReady means that the required pods are ready.
	ReadingReady ReadingReason = "PodReady"
	// ReadingPodMissing means that the required pod does not exist on the node, or
	// that it is a DaemonSet's and has finished.
	ReadingPodMissing ReadingReason = "PodMissing"
	// ReadingPodFinished means that the required pod has finished, and that no other
	// pod replaces it on the node.
	ReadingPodFinished ReadingReason = "PodFinished"
	// ReadingPodStatic means that the only pod on the node is static, and does not
	// count.
	ReadingPodStatic ReadingReason = "PodStatic"
	// ReadingPodNotByDaemonSet means that the DaemonSet owns a pod on the node that
	// the DaemonSet controller did not create, and none that it did create.
	ReadingPodNotByDaemonSet ReadingReason = "PodNotByDaemonSet"
	// ReadingPodNotReady means that the pod is not ready.
	ReadingPodNotReady ReadingReason = "PodNotReady"
	// ReadingPodReadyTooBriefly means that the pod is ready, but has not been ready
	// for the signal's minReadySeconds.
	ReadingPodReadyTooBriefly ReadingReason = "PodReadyTooBriefly"
	// ReadingPodNotAnnotated means that the pod does not carry the annotation that
	// makes it ready.
	ReadingPodNotAnnotated ReadingReason = "PodNotAnnotated"
	// ReadingPodTerminating means that the pod is terminating.
	ReadingPodTerminating ReadingReason = "PodTerminating"
	// ReadingCompleted means that the required pod has run to success in the current
	// boot.
	ReadingCompleted ReadingReason = "PodCompleted"
	// ReadingCompletedEarlier means that the required pod ran to success in the
	// current boot, and that it has been deleted since.
	ReadingCompletedEarlier ReadingReason = "PodCompletedEarlier"
	// ReadingPodNotCompleted means that the required pod has not finished.
	ReadingPodNotCompleted ReadingReason = "PodNotCompleted"
	// ReadingPodFailed means that the required pod failed, and that no other pod
	// replaces it.
	ReadingPodFailed ReadingReason = "PodFailed"
	// ReadingCompletionExpired means that the required pod ran to success, but longer
	// ago than the signal's maxAgeSeconds.
	ReadingCompletionExpired ReadingReason = "CompletionExpired"
	// ReadingStaleRun means that the required pod finished, and that its label does not
	// name the node's current boot, or that it is older than the Node.
	ReadingStaleRun ReadingReason = "StaleRun"
	// ReadingStaleEvidence means that the evidence of the pod's readiness predates
	// the current boot or the current Node.
	ReadingStaleEvidence ReadingReason = "StaleEvidence"
	// ReadingStaleAnnotation means that the annotation that makes the pod ready
	// predates the current boot or the current Node.
	ReadingStaleAnnotation ReadingReason = "StaleAnnotation"
	// ReadingDaemonSetNotFound means that the DaemonSet does not exist.
	ReadingDaemonSetNotFound ReadingReason = "DaemonSetNotFound"
	// ReadingDaemonSetBeingDeleted means that the DaemonSet is being deleted, so that
	// no pod is created for it.
	ReadingDaemonSetBeingDeleted ReadingReason = "DaemonSetBeingDeleted"
	// ReadingDaemonSetNotEligible means that the DaemonSet does not run on this
	// node because its node selector, affinity or tolerations exclude the node.
	ReadingDaemonSetNotEligible ReadingReason = "DaemonSetNotEligible"
	// ReadingDaemonDoesNotTolerateGate means that the gate and the daemon are
	// deadlocked: the gate waits for the daemon, which cannot run until the gate
	// opens.
	ReadingDaemonDoesNotTolerateGate ReadingReason = "DaemonDoesNotTolerateGate"
	// ReadingDaemonNotProbed means that the daemon's pods are ready as soon as they
	// run, because they have neither a readiness probe, a startup probe nor a
	// readiness gate.
	ReadingDaemonNotProbed ReadingReason = "DaemonNotProbed"
	// ReadingDaemonsReady means that every selected DaemonSet that should run on
	// the node has a ready pod there.
	ReadingDaemonsReady ReadingReason = "DaemonsReady"
	// ReadingNoDaemonSetBelongs means that no selected DaemonSet should run on the
	// node, so that there is nothing to wait for.
	ReadingNoDaemonSetBelongs ReadingReason = "NoDaemonSetBelongs"
	// ReadingNoDaemonSetSelected means that the signal selects no DaemonSet.
	ReadingNoDaemonSetSelected ReadingReason = "NoDaemonSetSelected"
	// ReadingNodeBeingSetUp means that no selected DaemonSet should run on the node
	// yet, but that this may change, because the node is being set up, drained or
	// repaired.
	ReadingNodeBeingSetUp ReadingReason = "NodeBeingSetUp"
)

// Reasons of signals that read the Node and the objects that describe it.
const (
	// ReadingMatches means that the node has what the signal requires.
	ReadingMatches ReadingReason = "Matches"
	// ReadingMissing means that the node does not have what the signal requires.
	ReadingMissing ReadingReason = "Missing"
	// ReadingDiffers means that the node has what the signal requires, but with
	// another status or value.
	ReadingDiffers ReadingReason = "Differs"
	// ReadingInsufficient means that the node has less of the resource than the
	// signal requires.
	ReadingInsufficient ReadingReason = "Insufficient"
	// ReadingFormerNode means that the object belongs to a former Node of the same
	// name.
	ReadingFormerNode ReadingReason = "FormerNode"
	// ReadingNotOwned means that the object has no owner reference to a Node.
	ReadingNotOwned ReadingReason = "NotOwned"
	// ReadingPoolIncomplete means that a pool of devices has not been published
	// completely.
	ReadingPoolIncomplete ReadingReason = "PoolIncomplete"
	// ReadingTooFewDevices means that the pools have fewer usable devices than the
	// signal requires.
	ReadingTooFewDevices ReadingReason = "TooFewDevices"
	// ReadingStaleHeartbeat means that the condition's last heartbeat is too old or
	// predates the current boot.
	ReadingStaleHeartbeat ReadingReason = "StaleHeartbeat"
	// ReadingTooBriefly means that the condition matches, but has not matched for
	// long enough.
	ReadingTooBriefly ReadingReason = "TooBriefly"
	// ReadingNoTransitionTime means that the condition matches, but has no
	// transition time.
	ReadingNoTransitionTime ReadingReason = "NoTransitionTime"
)

// Reasons of signals that are expressions.
const (
	// ReadingExpressionFailed means that the expression could not be evaluated on
	// this node, for example because it reads a label that the node does not carry.
	ReadingExpressionFailed ReadingReason = "ExpressionFailed"
)

// Reasons that apply to any signal.
const (
	// ReadingNotObserved means that what the signal depends on has not been
	// observed yet.
	ReadingNotObserved ReadingReason = "NotObserved"
	// ReadingNoneHolds means that no alternative of anyOf holds.
	ReadingNoneHolds ReadingReason = "NoneHolds"
)

// Reasons why no signal can currently open a gate on a node.
const (
	// ReadingInvalidSpec means that the gate's signals cannot be compiled.
	ReadingInvalidSpec ReadingReason = ReasonInvalidSpec
	// ReadingNodeSilent means that the node is unreachable (Ready is Unknown), and
	// that what the API reports about it is outdated.
	ReadingNodeSilent ReadingReason = "NodeSilent"
	// ReadingNodeShutdown means that the node has announced its shutdown.
	ReadingNodeShutdown ReadingReason = "NodeShutdown"
	// ReadingNodeSetup means that a cloud controller or provisioner has not
	// finished setting up the node.
	ReadingNodeSetup ReadingReason = "NodeSetup"
	// ReadingMinClosed means that the gate has not been closed for
	// timing.minClosedSeconds.
	ReadingMinClosed ReadingReason = "MinClosed"
	// ReadingOpenAfter means that the signals have not been in the state that opens
	// the gate for timing.openAfterSeconds.
	ReadingOpenAfter ReadingReason = "OpenAfter"
	// ReadingGroupIncomplete means that the node is fit, but that fewer nodes of its
	// group are fit than openTogether.atLeast requires.
	ReadingGroupIncomplete ReadingReason = "GroupIncomplete"
	// ReadingGroupUnknown means that the node does not belong to a group, because it
	// does not have the label openTogether.labelKey.
	ReadingGroupUnknown ReadingReason = "GroupUnknown"
	// ReadingGroupSizeUnknown means that no node of the group declares the size of the
	// group with the label openTogether.sizeLabelKey.
	ReadingGroupSizeUnknown ReadingReason = "GroupSizeUnknown"
	// ReadingReopenedByHand means that only a user can open the gate, because its
	// reopen is Manual.
	ReadingReopenedByHand ReadingReason = "ReopenedByHand"
	// ReadingPaused means that the gate is paused.
	ReadingPaused ReadingReason = "Paused"
	// ReadingOverridden means that a manual override keeps the gate closed on the
	// node for a limited time, regardless of its signals.
	ReadingOverridden ReadingReason = "Overridden"
)
