// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// messages contains a message for each reason of a reading. %s is the reading's subject.
var messages = map[v1alpha1.ReadingReason]string{
	v1alpha1.ReadingReady:                     "%s is ready",
	v1alpha1.ReadingPodMissing:                "%s has no pod on this node",
	v1alpha1.ReadingPodFinished:               "pod %s has finished, so it does not count",
	v1alpha1.ReadingPodStatic:                 "pod %s is a static pod, so it does not count",
	v1alpha1.ReadingPodNotByDaemonSet:         "pod %s is owned by the DaemonSet but was not created by the DaemonSet controller: delete the pod, so that the DaemonSet controller creates one",
	v1alpha1.ReadingPodNotReady:               "pod %s is not ready",
	v1alpha1.ReadingPodReadyTooBriefly:        "pod %s is ready, but has not been ready for the signal's minReadySeconds",
	v1alpha1.ReadingPodNotAnnotated:           `pod %s does not carry the gate's readyAnnotation with the value "true"`,
	v1alpha1.ReadingPodTerminating:            "pod %s is terminating",
	v1alpha1.ReadingCompleted:                 "pod %s has succeeded",
	v1alpha1.ReadingCompletedEarlier:          "a pod of %s has succeeded in the current boot, and has been deleted",
	v1alpha1.ReadingPodNotCompleted:           "pod %s has not finished",
	v1alpha1.ReadingPodFailed:                 "pod %s failed, and no other pod replaces it",
	v1alpha1.ReadingCompletionExpired:         "the success of %s is older than the signal's maxAgeSeconds",
	v1alpha1.ReadingStaleRun:                  "pod %s finished, but before the current Node was created, or its label nodegate.dev/boot-id does not name the current boot (status.nodeInfo.bootID): run it again with this label",
	v1alpha1.ReadingStaleEvidence:             "the evidence that pod %s is ready predates the current boot or the current Node",
	v1alpha1.ReadingStaleAnnotation:           "the readyAnnotation of pod %s predates the current boot or the current Node: make its program remove the annotation when it starts, or delete the pod",
	v1alpha1.ReadingDaemonSetNotFound:         "DaemonSet %s does not exist: create it, or correct the gate",
	v1alpha1.ReadingDaemonSetBeingDeleted:     "DaemonSet %s is being deleted, so no pod is created for it",
	v1alpha1.ReadingDaemonSetNotEligible:      "DaemonSet %s does not run on this node: its node selector, affinity or tolerations exclude the node",
	v1alpha1.ReadingDaemonDoesNotTolerateGate: "DaemonSet %s, a taint of the gate that waits for it: add the toleration to its pod template, or run 'kubectl gate tolerate'",
	v1alpha1.ReadingDaemonNotProbed:           "the pods of DaemonSet %s have no readinessProbe, so they are ready as soon as they run",
	v1alpha1.ReadingDaemonsReady:              "every selected DaemonSet that should run on this node has a ready pod here",
	v1alpha1.ReadingNoDaemonSetSelected:       "no DaemonSet matches its selector, so it holds on every node",
	v1alpha1.ReadingNoDaemonSetBelongs:        "no selected DaemonSet should run on this node",
	v1alpha1.ReadingNodeBeingSetUp:            "no selected DaemonSet should run on this node yet, and the node is being set up, drained or repaired: it has the taint %s",
	v1alpha1.ReadingMatches:                   "%s matches",
	v1alpha1.ReadingMissing:                   "the node has no %s",
	v1alpha1.ReadingDiffers:                   "%s does not match",
	v1alpha1.ReadingInsufficient:              "%s is less than the gate requires",
	v1alpha1.ReadingFormerNode:                "%s belongs to a former Node of the same name",
	v1alpha1.ReadingNotOwned:                  "%s is not owned by a Node, so it may belong to a former Node of the same name",
	v1alpha1.ReadingPoolIncomplete:            "%s is incomplete",
	v1alpha1.ReadingTooFewDevices:             "too few usable devices: %s",
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
	v1alpha1.ReadingGroupIncomplete:           "the node's group is incomplete: %s (openTogether.atLeast)",
	v1alpha1.ReadingGroupUnknown:              "the node has no label %s, which names its group (openTogether.labelKey)",
	v1alpha1.ReadingGroupSizeUnknown:          "no node of the group declares its size, from 1 to 5000, with the label %s (openTogether.sizeLabelKey)",
	v1alpha1.ReadingReopenedByHand:            "the gate opens only when a user removes its taint (reopen: Manual): repair the node, then remove the taint",
}

// Message returns a human-readable description of the reading.
func (r Reading) Message() string { return message(r.Reason, r.Subject) }

// SnapshotMessage is Message for a reading of facts that were read once: what has not been observed
// could not be read, and will not be.
func (r Reading) SnapshotMessage() string {
	if r.Reason == v1alpha1.ReadingNotObserved {
		return Printable(r.Subject) + " is unknown"
	}
	return r.Message()
}

func message(reason v1alpha1.ReadingReason, subject string) string {
	format, ok := messages[reason]
	if !ok {
		return string(reason)
	}
	return strings.ReplaceAll(format, "%s", Printable(subject))
}

// nonMembers contains a message for each reason why a node is not a member.
var nonMembers = map[v1alpha1.NonMemberReason]string{
	v1alpha1.NonMemberCreatedBeforeGate: "the node was created before the gate, and existingNodes is Ignore",
	v1alpha1.NonMemberNotClosedAtBirth:  "the node was not closed within ten minutes of its creation: it got its labels later, the gate was not in force, or the API server did not close it; existingNodes is Ignore",
	v1alpha1.NonMemberNotAccepted:       "the gate is not accepted, so no node becomes a member",
	v1alpha1.NonMemberPaused:            "the gate is paused, so no node becomes a member",
	v1alpha1.NonMemberBlocked:           "the node is unreachable, shutting down or being set up; it is evaluated afterwards",
	v1alpha1.NonMemberSignalsUnknown:    "a signal is unknown; the node is evaluated when all signals are known",
	v1alpha1.NonMemberSignalsDoNotHold:  "a signal does not hold: the node becomes a member when all hold (existingNodes: Adopt)",
	v1alpha1.NonMemberWaitsForTurn:      "the signals hold, and the node becomes a member with the gate open when its turn comes: existing nodes become members at a limited rate",
	v1alpha1.NonMemberWaitsForBudget:    "the node is to be closed, and waits until budget.maxReclosed allows another node of its zone to be closed",
	v1alpha1.NonMemberPodsNotListed:     "it is unknown whether the node is idle, because its pods have not been listed yet (existingNodes: CloseIfIdle)",
	v1alpha1.NonMemberNotIdle:           "the node runs pods other than daemons; it is checked again every ten minutes, and closed when it is idle (existingNodes: CloseIfIdle)",
}

// NonMemberMessage returns a human-readable explanation of why a node is not a member.
func NonMemberMessage(why v1alpha1.NonMemberReason) string { return nonMembers[why] }

// FirstNames joins the first names of a list of the given length, followed by the number of
// the others.
func FirstNames(names []string, length int) string {
	text := strings.Join(names, ", ")
	if more := length - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}

// OpenedByDeadline describes the nodes on which a gate is open because its deadline passed.
func OpenedByDeadline(nodes string) string {
	return "opened by the deadline, while the signals have not held yet: " + nodes
}

// Printable returns the text as a single line in which non-printable characters, such
// as newlines and terminal control characters, are escaped as in Go. Nodes control some
// of their data and must not be able to forge output. Bytes that are not UTF-8 are escaped,
// too: some terminals take them for control characters.
func Printable(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
