// SPDX-License-Identifier: Apache-2.0

package explain

import "github.com/nodegate/nodegate/api/v1alpha1"

// The texts in this file are those of docs/runbooks, so that users need not look a
// reason up. A test compares the two.

// closedBecause explains why a gate closed, and openedBecause why it opened.
var (
	closedBecause = map[v1alpha1.Reason]string{
		v1alpha1.ReasonBirth:              "the node is new",
		v1alpha1.ReasonRebooted:           "the node has a new boot ID",
		v1alpha1.ReasonRebootedUnobserved: "the node rebooted while nodegate did not watch it, and a signal does not hold",
		v1alpha1.ReasonNodeSilent:         "the node became unreachable (Ready is Unknown)",
		v1alpha1.ReasonNodeShutdown:       "the node announced its shutdown",
		v1alpha1.ReasonRegression:         "a signal stopped holding",
		v1alpha1.ReasonGroupIncomplete:    "too few nodes of its group were fit (closeTogether: WhenIncomplete)",
		v1alpha1.ReasonAdopted:            "the node already carried the taint",
		v1alpha1.ReasonExisting:           "existingNodes requires it",
		v1alpha1.ReasonExistingIdle:       "existingNodes requires it, and the controller will check the node once more",
		v1alpha1.ReasonOverridden:         "a manual override keeps it closed",
		v1alpha1.ReasonOverrideEnded:      "a manual override that kept it open ended",
		v1alpha1.ReasonSignalsHold:        "all signals of closeWhen hold",
	}
	openedBecause = map[v1alpha1.Reason]string{
		v1alpha1.ReasonSignalsHold:    "all signals of openWhen hold",
		v1alpha1.ReasonSignalsCleared: "a signal of closeWhen no longer holds",
		v1alpha1.ReasonOpenedByHand:   "a user removed the taint (reopen: Manual)",
		v1alpha1.ReasonNodeReturned:   "the node was out of service, and is reporting again",
		v1alpha1.ReasonGateDeleted:    "the gate no longer exists",
		v1alpha1.ReasonNotSelected:    "the gate no longer selects the node",
		v1alpha1.ReasonNotIdle:        "it closed because the node was idle, but the second check found pods",
		v1alpha1.ReasonOptedOut:       "a label excludes the node from all gates",
		v1alpha1.ReasonAdopted:        "the signals held when the node became a member",
		v1alpha1.ReasonOverridden:     "a manual override keeps it open",
		v1alpha1.ReasonOverrideEnded:  "a manual override that kept it closed ended",
		v1alpha1.ReasonDeadlinePassed: "its deadline passed (action: Open)",
		v1alpha1.ReasonDryRun:         "its mode was changed to DryRun",
	}
)

// nextSteps contains what to do about a reading that keeps a gate closed.
var nextSteps = map[v1alpha1.ReadingReason]string{
	v1alpha1.ReadingPodMissing:                "find out why the node has no such pod: check the events, tolerations and image of its DaemonSet, or what creates its Job",
	v1alpha1.ReadingPodFinished:               "find out why the pod has finished, and why no other pod replaces it; for a pod that runs once, use the signal completed",
	v1alpha1.ReadingPodStatic:                 "let a DaemonSet run the pod: a kubelet can create static pods with any labels, so they do not count",
	v1alpha1.ReadingPodNotByDaemonSet:         "find out who created that pod, and delete it: the DaemonSet controller then creates its own",
	v1alpha1.ReadingPodNotReady:               "check the pod: its readiness probe, logs, kubectl describe pod",
	v1alpha1.ReadingPodTerminating:            "wait for the pod's replacement; if the pod keeps terminating, find out why its kubelet does not stop it",
	v1alpha1.ReadingPodNotAnnotated:           `check the pod's program: it has not set readyAnnotation to "true"`,
	v1alpha1.ReadingPodNotCompleted:           "wait: the check is running on the node; kubectl logs shows how far it is",
	v1alpha1.ReadingPodFailed:                 "the check failed: see the pod's logs; repair or replace the node, or run the check again",
	v1alpha1.ReadingCompletionExpired:         "run the check again: its last success is older than the signal's maxAgeSeconds",
	v1alpha1.ReadingStaleRun:                  "run the check again, in a pod with the label nodegate.dev/boot-id: its pod is from before a reboot, or may be",
	v1alpha1.ReadingStaleEvidence:             "wait: the pod's readiness is from before a reboot; this resolves itself within a minute or two of the kubelet's return; if it takes longer, the node's clock was ahead when the node became Ready: correct the clock, then delete the pod",
	v1alpha1.ReadingStaleAnnotation:           "the annotation is from before a reboot, and this does not resolve itself: make the program remove it when it starts, and kubectl delete pod once",
	v1alpha1.ReadingDaemonSetNotFound:         "create the DaemonSet, or correct the gate",
	v1alpha1.ReadingDaemonSetBeingDeleted:     "create the DaemonSet again when it is deleted, or correct the gate; if the deletion does not end, find out which of its pods or finalizers remain",
	v1alpha1.ReadingDaemonSetNotEligible:      "the DaemonSet does not run on this node: narrow the gate's nodeSelector, or allow the DaemonSet to run there",
	v1alpha1.ReadingDaemonDoesNotTolerateGate: "the gate is deadlocked: run kubectl gate tolerate --gate <gate>, or add a toleration of the named taint to the DaemonSet's pod template",
	v1alpha1.ReadingNodeSetup:                 "wait: a cloud controller or provisioner is still setting up the node; see its own taints",
	v1alpha1.ReadingNodeBeingSetUp:            "wait until the taint that the message names is removed: the node is being set up, drained or repaired",
	v1alpha1.ReadingMissing:                   missingStep,
	v1alpha1.ReadingDiffers:                   missingStep,
	v1alpha1.ReadingInsufficient:              missingStep,
	v1alpha1.ReadingFormerNode:                "wait: the object belongs to a former Node of the same name; the program that created it replaces it",
	v1alpha1.ReadingNotOwned:                  "find out who created the object without an owner reference to its Node, and delete it: the kubelet creates a CSINode, and a DRA driver's kubelet plugin a ResourceSlice, with one",
	v1alpha1.ReadingPoolIncomplete:            "the driver has not published all slices of a pool yet: check its pod on the node",
	v1alpha1.ReadingTooFewDevices:             "the driver offers fewer devices than minDevices, or some are tainted: repair the devices, and remove the taint or the DeviceTaintRule that the message names",
	v1alpha1.ReadingExpressionFailed:          "correct the expression, which could not be evaluated on this node: the message has CEL's error",
	v1alpha1.ReadingStaleHeartbeat:            "the condition has not been confirmed recently: check whether the program that reports it is running, and whether the node's clock is right",
	v1alpha1.ReadingTooBriefly:                tooBrieflyStep,
	v1alpha1.ReadingPodReadyTooBriefly:        tooBrieflyStep,
	v1alpha1.ReadingNoTransitionTime:          "the program that reports the condition does not set a transition time: remove forSeconds",
	v1alpha1.ReadingNoneHolds:                 "no alternative of anyOf holds: the message has the reason for each",
	v1alpha1.ReadingNotObserved:               "nodegate cannot read it, or has not read it yet: see the gate's condition Ready",
	v1alpha1.ReadingInvalidSpec:               "the gate's selector or signals are invalid: see its condition Accepted",
	v1alpha1.ReadingNodeSilent:                unreachableStep,
	v1alpha1.ReadingNodeShutdown:              unreachableStep,
	v1alpha1.ReadingMinClosed:                 "wait: this resolves itself after timing.minClosedSeconds",
	v1alpha1.ReadingOpenAfter:                 "wait: this resolves itself after timing.openAfterSeconds; the message has the time",
	v1alpha1.ReadingPaused:                    "the gate's mode is Paused: change the mode, or delete the gate",
	v1alpha1.ReadingGroupIncomplete:           "run kubectl gate why for nodes that the message names as not fit; if nodes have not joined the group, check their machines and the label of the group; the gate opens on the whole group when enough of its nodes are fit",
	v1alpha1.ReadingGroupUnknown:              "add the label to the node, or narrow the gate's nodeSelector to nodes that have it",
	v1alpha1.ReadingGroupSizeUnknown:          "add the label with the number of nodes to the nodes of the group, or use a number in openTogether.atLeast",
	v1alpha1.ReadingReopenedByHand:            "check the node, then run kubectl gate open <node> --gate <gate>",
	v1alpha1.ReadingOverridden:                "wait: the override ends at the time in the message; to end it now, run kubectl gate reset <node> --gate <gate>",
	v1alpha1.ReadingMatches:                   holdsStep,
	v1alpha1.ReadingReady:                     holdsStep,
	v1alpha1.ReadingCompleted:                 holdsStep,
	v1alpha1.ReadingCompletedEarlier:          holdsStep,
	v1alpha1.ReadingDaemonsReady:              holdsStep,
	v1alpha1.ReadingNoDaemonSetBelongs:        holdsStep,
	v1alpha1.ReadingNoDaemonSetSelected:       holdsStep,
	v1alpha1.ReadingDaemonNotProbed:           "add a readinessProbe to the daemon: without one it is ready as soon as it runs",
}

const (
	unreadStep       = "the controller may be able to read what is unknown here: get permission to read it, and retry"
	missingStep      = "find out why the node does not have what the message names, or not with the required value: check the program that sets it"
	untoleratedStep  = "the DaemonSet does not tolerate the taint %s%s, so it has no pod on the node until this taint is removed: wait, or add the toleration if its daemon must run before"
	falseStep        = "find out why the expression is false for the node: compare the gate's spec with the Node (kubectl get node <node> -o yaml)"
	tooBrieflyStep   = "wait: this resolves itself after forSeconds or minReadySeconds; if it takes longer, the node's clock was ahead, and a lastTransitionTime is in the future: correct the clock, then delete the pod, or restart the program that reports the condition"
	unknownStep      = "the status of the condition is Unknown, which neither opens nor closes a gate: check the program that sets it"
	anyOfUnknownStep = "an alternative of anyOf is unknown, which neither opens nor closes a gate: the message has the reason for each"
	unreachableStep  = "check the node: no gate opens on a node that is unreachable or shutting down"
	holdsStep        = "a closeWhen gate stays closed while its signals hold"
)
