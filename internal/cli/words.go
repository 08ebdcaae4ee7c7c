// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/nodegate/nodegate/api/v1alpha1"

// What the runbooks say of each reason, in their words, so that nobody has to look
// it up. A test holds the two against each other.

// closedBecause says why a gate closed, and openedBecause why it opened.
var (
	closedBecause = map[v1alpha1.Reason]string{
		v1alpha1.ReasonBirth:         "the node is new",
		v1alpha1.ReasonRebooted:      "it has a new boot ID",
		v1alpha1.ReasonNodeSilent:    "its Ready condition became Unknown",
		v1alpha1.ReasonNodeShutdown:  "it announced its shutdown",
		v1alpha1.ReasonRegression:    "a signal stopped holding",
		v1alpha1.ReasonAdopted:       "it carried the taint already",
		v1alpha1.ReasonExisting:      "existingNodes asks for it",
		v1alpha1.ReasonExistingIdle:  "existingNodes asks for it, and it will be looked at once more",
		v1alpha1.ReasonOverridden:    "a person has it closed for a time",
		v1alpha1.ReasonOverrideEnded: "it was closed all along, and a person had it open",
		v1alpha1.ReasonSignalsHold:   "all signals of closeWhen hold",
	}
	openedBecause = map[v1alpha1.Reason]string{
		v1alpha1.ReasonSignalsHold:    "all signals of openWhen hold",
		v1alpha1.ReasonSignalsCleared: "a signal of closeWhen no longer holds",
		v1alpha1.ReasonOpenedByHand:   "somebody took the taint off (reopen: Manual)",
		v1alpha1.ReasonNodeReturned:   "it was out of service, and speaks",
		v1alpha1.ReasonGateDeleted:    "the gate is gone",
		v1alpha1.ReasonNotSelected:    "the gate does not select the node any more",
		v1alpha1.ReasonNotIdle:        "it was closed for being idle, and is not",
		v1alpha1.ReasonOptedOut:       `the node has the label nodegate.dev/opt-out: "true"`,
		v1alpha1.ReasonAdopted:        "the node was fit when the gate came to it",
		v1alpha1.ReasonOverridden:     "a person has it open for a time",
		v1alpha1.ReasonOverrideEnded:  "it was open all along, and a person had it closed",
		v1alpha1.ReasonDeadlinePassed: "its deadline had passed (action: Open)",
		v1alpha1.ReasonDryRun:         "its mode was set to DryRun",
	}
)

// todo says what to do about a reading that keeps a gate closed.
var todo = map[v1alpha1.ReadingReason]string{
	v1alpha1.ReadingPodMissing:                "see why the daemon has no pod there: its DaemonSet's events, tolerations, image",
	v1alpha1.ReadingPodNotReady:               "look at that pod: its readiness probe, logs, kubectl describe pod",
	v1alpha1.ReadingPodTerminating:            "wait for its successor; if it hangs, see why its kubelet does not end it",
	v1alpha1.ReadingPodNotAnnotated:           `its program has not set readyAnnotation to "true"`,
	v1alpha1.ReadingStaleEvidence:             "it looks ready from before a reboot. Passes by itself, within a minute or two of the kubelet's return",
	v1alpha1.ReadingStaleAnnotation:           "the annotation is from before a reboot, and does not pass by itself: have the program take it away when it starts, and kubectl delete pod once",
	v1alpha1.ReadingDaemonSetNotFound:         "create the DaemonSet, or correct the gate",
	v1alpha1.ReadingDaemonSetNotEligible:      "the DaemonSet does not run on this node: narrow the gate's nodeSelector, or let it run there",
	v1alpha1.ReadingDaemonDoesNotTolerateGate: "a deadlock: add the toleration of the taint that is named to the DaemonSet's pod template",
	v1alpha1.ReadingNodeSetup:                 setupTodo,
	v1alpha1.ReadingNodeBeingSetUp:            setupTodo,
	v1alpha1.ReadingMissing:                   lackTodo,
	v1alpha1.ReadingDiffers:                   lackTodo,
	v1alpha1.ReadingInsufficient:              lackTodo,
	v1alpha1.ReadingFormerNode:                "the CSINode belongs to a Node that had this name before; its kubelet replaces it",
	v1alpha1.ReadingNotOwned:                  "the ResourceSlice does not tell its Node as owner: only slices that a kubelet's driver publishes count",
	v1alpha1.ReadingPoolIncomplete:            "the driver has not published all slices of a pool yet: see its pod on the node",
	v1alpha1.ReadingExpressionFailed:          "the expression could not be evaluated on this node; the message has CEL's words. See expressions",
	v1alpha1.ReadingStaleHeartbeat:            "nobody has confirmed the condition lately: see whether who reports it runs",
	v1alpha1.ReadingTooBriefly:                brieflyTodo,
	v1alpha1.ReadingPodReadyTooBriefly:        brieflyTodo,
	v1alpha1.ReadingNoTransitionTime:          "who reports the condition does not tell since when: do without forSeconds",
	v1alpha1.ReadingNoneHolds:                 "no alternative of anyOf holds; the message has each one's words",
	v1alpha1.ReadingNotObserved:               "nodegate cannot read it (yet): see the gate's condition Ready",
	v1alpha1.ReadingInvalidSpec:               "the gate's selector or signals cannot be read: see its condition Accepted",
	v1alpha1.ReadingNodeSilent:                silenceTodo,
	v1alpha1.ReadingNodeShutdown:              silenceTodo,
	v1alpha1.ReadingMinClosed:                 "passes by itself, after timing.minClosedSeconds",
	v1alpha1.ReadingOpenAfter:                 "passes by itself, after timing.openAfterSeconds; the message says when",
	v1alpha1.ReadingPaused:                    "the gate's mode is Paused: nothing opens it but its deletion, or another mode",
	v1alpha1.ReadingReopenedByHand:            "see to the node, then kubectl taint node <node> <key>-",
	v1alpha1.ReadingOverridden:                "passes by itself, at the time that the message says; or kubectl annotate node <node> override.nodegate.dev/<gate>-",
	v1alpha1.ReadingMatches:                   holdsTodo,
	v1alpha1.ReadingReady:                     holdsTodo,
	v1alpha1.ReadingDaemonsReady:              holdsTodo,
	v1alpha1.ReadingNoDaemonSetBelongs:        holdsTodo,
	v1alpha1.ReadingNoDaemonSetSelected:       holdsTodo,
	v1alpha1.ReadingDaemonNotProbed:           "give the daemon a readinessProbe: without one it is ready as soon as it runs",
}

const (
	setupTodo   = "a cloud controller or provisioner is not done with the node; see its own taints"
	lackTodo    = "the node does not have the label, annotation, condition, driver or resource, or not as asked for"
	brieflyTodo = "passes by itself, after forSeconds or minReadySeconds"
	silenceTodo = "nothing opens on a node that does not report, or is going down"
	holdsTodo   = "a closeWhen gate is closed while this is so"
)
