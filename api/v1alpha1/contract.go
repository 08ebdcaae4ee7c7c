// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Names that nodegate shares with the outside world. Each exists once, here.
const (
	// RecordAnnotationPrefix begins the node annotation that holds a gate's
	// record: gate.nodegate.dev/<name of the gate>.
	RecordAnnotationPrefix = "gate.nodegate.dev/"

	// OverrideAnnotationPrefix begins the node annotation by which a person has a
	// gate be open or closed on the node for a time:
	// override.nodegate.dev/<name of the gate>.
	OverrideAnnotationPrefix = "override.nodegate.dev/"

	// OptOutLabel, with the value OptOutValue, takes a Node out of all gates: it
	// is as if none selected it.
	OptOutLabel = "nodegate.dev/opt-out"
	OptOutValue = "true"

	// DefaultNamespace is the namespace that nodegate runs in, unless it is
	// installed elsewhere.
	DefaultNamespace = "nodegate-system"

	// LeaseName is the name of the Lease there that the controller at work holds.
	LeaseName = "nodegate"

	// TaintOutOfService makes core detach volumes and delete pods of a node.
	TaintOutOfService = corev1.TaintNodeOutOfService

	// TaintCloudShutdown is put on a silent node by its cloud's controller while
	// the machine is shut down (cloud-provider's TaintNodeShutdown).
	TaintCloudShutdown = "node.cloudprovider.kubernetes.io/shutdown"

	// CoreTaintPrefix begins the taint keys that belong to Kubernetes itself.
	CoreTaintPrefix = "node.kubernetes.io/"
)

// The parameter of the birth policy: what it reads to know the gates.
const (
	// BirthParameter is the name of the PodTemplate in nodegate's own namespace.
	BirthParameter = "nodegate-birth"
	// ParameterLabel, with the value "true", is its label.
	ParameterLabel = "nodegate.dev/birth"
	// ParameterSource is its annotation that says where the gates were declared
	// (see Source...).
	ParameterSource = "nodegate.dev/source"
)

// Where a gate was declared, as told in records.
const (
	// SourceCRD is a NodeGate object of the API server.
	SourceCRD = "crd"
	// SourceFiles is a file of the directory that the controller was given.
	SourceFiles = "files"
)

// States of a gate on a node, as told in records.
const (
	// StateClosed means that the taint is on the node.
	StateClosed = "Closed"
	// StateOpen means that it is not.
	StateOpen = "Open"
)

// Types of a NodeGate's conditions.
const (
	// ConditionReady is True when the gate is accepted, all that it needs is
	// observed, and, for an openWhen gate, closing at birth is proved.
	ConditionReady = "Ready"
	// ConditionAccepted is True when the gate is in force.
	ConditionAccepted = "Accepted"
	// ConditionOverdue is True while a node has passed its deadline and is closed,
	// or was opened by it and its signals have not all held since.
	ConditionOverdue = "Overdue"
	// ConditionThrottled is True while closing waits for budget.
	ConditionThrottled = "Throttled"
	// ConditionContended is True while another writer fights for the taint.
	ConditionContended = "Contended"
)

// Reasons of the conditions Accepted and Ready.
const (
	// ReasonAccepted means that the gate is in force.
	ReasonAccepted = "Accepted"
	// ReasonNoBootEvidence means that the gate is in force, and that none of its
	// signals can prove that it speaks of the current boot.
	ReasonNoBootEvidence = "NoBootEvidence"
	// ReasonStampNotAllowed means that the gate is in force, and that its openings
	// are not stamped, because the administrator has not allowed the annotation.
	ReasonStampNotAllowed = "StampNotAllowed"
	// ReasonInvalidSpec means that the gate breaks a rule of the API.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonTaintKeyNotAllowed means that the administrator has not allowed the
	// taint's key.
	ReasonTaintKeyNotAllowed = "TaintKeyNotAllowed"
	// ReasonTaintConflict means that gates have the same key and effect with
	// different values. The oldest of them is in force, the others are not.
	ReasonTaintConflict = "TaintConflict"
	// ReasonOwnedByNodeReadinessRule means that a NodeReadinessRule manages the
	// taint's key.
	ReasonOwnedByNodeReadinessRule = "OwnedByNodeReadinessRule"

	// ReasonInDryRun means that the gate decides and changes nothing, as its mode
	// asks.
	ReasonInDryRun = string(ReasonDryRun)
	// ReasonPaused means that the gate neither closes nor opens nodes, as its mode
	// asks.
	ReasonPaused = string(ReadingPaused)

	// ReasonReady means that nothing is amiss.
	ReasonReady = "Ready"
	// ReasonNotAccepted means that the gate is not in force; see Accepted.
	ReasonNotAccepted = "NotAccepted"
	// ReasonFeedsNotSynced means that something the gate needs is not observed.
	ReasonFeedsNotSynced = "FeedsNotSynced"
	// ReasonBirthNotProved means that the API server did not close the gate on a
	// probe node.
	ReasonBirthNotProved = "BirthNotProved"
	// ReasonDaemonSetNotFound means that a DaemonSet of the gate does not exist.
	ReasonDaemonSetNotFound = string(ReadingDaemonSetNotFound)
	// ReasonDaemonDoesNotTolerateGate means that a daemon that the gate waits for
	// cannot run while the gate is closed: a deadlock.
	ReasonDaemonDoesNotTolerateGate = string(ReadingDaemonDoesNotTolerateGate)
	// ReasonGatesDeadlocked means that two gates wait for each other: each for a
	// daemon that does not tolerate the other's taint.
	ReasonGatesDeadlocked = "GatesDeadlocked"
	// ReasonWriteDenied means that the API server does not let nodegate write a
	// node as the gate asks.
	ReasonWriteDenied = "WriteDenied"

	// ReasonPermissionMissing means that nodegate lacks a right that the gate
	// needs.
	ReasonPermissionMissing = "PermissionMissing"

	// ReasonContended means that another writer fights for the taint.
	ReasonContended = "Contended"
	// ReasonThrottled means that closing waits for budget.
	ReasonThrottled = "Throttled"
	// ReasonOverdue means that nodes have passed the deadline.
	ReasonOverdue = string(ReasonDeadlinePassed)
)

// Reason says why a gate is in its state on a node. It stands in records, logs
// and metrics.
type Reason string

// Reasons for closing.
const (
	// ReasonBirth means that the node is new.
	ReasonBirth Reason = "Birth"
	// ReasonAdopted means that the node already carried the taint.
	ReasonAdopted Reason = "Adopted"
	// ReasonExisting means that existingNodes asks for closing.
	ReasonExisting Reason = "Existing"
	// ReasonExistingIdle means the same for a node that was found idle, and is to
	// be looked at once more. It becomes ReasonExisting, or the gate opens.
	ReasonExistingIdle Reason = "ExistingIdle"
	// ReasonRebooted means that the node shows a new boot ID.
	ReasonRebooted Reason = "Rebooted"
	// ReasonNodeSilent means that the node's Ready condition is Unknown.
	ReasonNodeSilent Reason = "NodeSilent"
	// ReasonNodeShutdown means that the node announced its shutdown.
	ReasonNodeShutdown Reason = "NodeShutdown"
	// ReasonRegression means that a signal stopped holding.
	ReasonRegression Reason = "Regression"
	// ReasonOverrideEnded means that the gate was closed all along, and a person
	// had it open on the node for a time. It is a reason for opening too: a person
	// had the gate closed, and it was open all along.
	ReasonOverrideEnded Reason = "OverrideEnded"
)

// ReasonOverridden means that a person has the gate be so on the node for a time:
// a reason for closing, and for opening.
const ReasonOverridden Reason = "Overridden"

// ReasonSignalsHold means that all signals hold: a reason for opening of an
// openWhen gate, and for closing of a closeWhen gate.
const ReasonSignalsHold Reason = "SignalsHold"

// Reasons for opening.
const (
	// ReasonSignalsCleared means that a signal of a closeWhen gate no longer holds.
	ReasonSignalsCleared Reason = "SignalsCleared"
	// ReasonDeadlinePassed means that the gate's deadline passed, whatever the
	// signals say. It becomes ReasonSignalsHold when they all hold.
	ReasonDeadlinePassed Reason = "DeadlinePassed"
	// ReasonNodeReturned means that a node that was out of service speaks again,
	// whatever the signals say.
	ReasonNodeReturned Reason = "NodeReturned"
	// ReasonOpenedByHand means that somebody removed the taint of a gate that
	// is reopened by hand.
	ReasonOpenedByHand Reason = "OpenedByHand"
	// ReasonGateDeleted means that the gate does not exist any more.
	ReasonGateDeleted Reason = "GateDeleted"
	// ReasonNotSelected means that the gate does not select the node any more.
	ReasonNotSelected Reason = "NotSelected"
	// ReasonDryRun means that the gate was switched to DryRun, and gives up what it
	// held.
	ReasonDryRun Reason = "DryRun"
	// ReasonOptedOut means that the node is out of all gates (OptOutLabel).
	ReasonOptedOut Reason = "OptedOut"
	// ReasonNotIdle means that a node that was closed because it was idle turned
	// out not to be.
	ReasonNotIdle Reason = "NotIdle"
)

// Reasons of Events about nodes.
const (
	// EventGateOpened means that gates opened on the node, by one write.
	EventGateOpened = "GateOpened"
	// EventGateClosed means the same of gates that closed. What the API server
	// closed while the Node was created has none.
	EventGateClosed = "GateClosed"
	// EventBypassedPods means that pods had started on the node while a gate was
	// closed.
	EventBypassedPods = "BypassedPods"
	// EventBypassedPodsRemain means that some of them could not be evicted.
	EventBypassedPodsRemain = "BypassedPodsRemain"
	// EventDeadlinePassed means that a gate has been closed on the node for longer
	// than its deadline allows.
	EventDeadlinePassed = string(ReasonDeadlinePassed)
	// EventOverrideRefused means that an override was taken off the node although
	// it had not ended, because it could not be followed.
	EventOverrideRefused = "OverrideRefused"
)

// Reasons of Events about gates. Each tells of a condition that has changed.
const (
	// EventAccepted means that a gate is in force that was not.
	EventAccepted = ReasonAccepted
	// EventNotAccepted means that a gate is not in force.
	EventNotAccepted = ReasonNotAccepted
	// EventReady means that nothing is amiss with a gate any more.
	EventReady = ReasonReady
	// EventNotReady means that something is amiss with a gate that was ready.
	EventNotReady = "NotReady"
	// EventOverdue means that nodes have passed the gate's deadline, and none had.
	EventOverdue = "Overdue"
	// EventNotOverdue means that no node has any more.
	EventNotOverdue = "NotOverdue"
	// EventThrottled means that closing began to wait for budget.
	EventThrottled = ReasonThrottled
	// EventNotThrottled means that it waits no more.
	EventNotThrottled = "NotThrottled"
	// EventContended means that another writer began to fight for the taint.
	EventContended = ReasonContended
	// EventNotContended means that nobody does any more.
	EventNotContended = "NotContended"
)

// Actions of Events: what was done to the node or gate that they are about.
const (
	// EventActionOpen means that gates were opened on the node.
	EventActionOpen = "Open"
	// EventActionClose means that gates were closed on it.
	EventActionClose = "Close"
	// EventActionKeepClosed means that a gate was left closed.
	EventActionKeepClosed = string(DeadlineKeepClosed)
	// EventActionReport means that pods were reported, and left alone.
	EventActionReport = string(BypassedReport)
	// EventActionEvict means that pods are evicted.
	EventActionEvict = string(BypassedEvict)
	// EventActionWithdraw means that an override was taken off the node.
	EventActionWithdraw = "Withdraw"
	// EventActionSetCondition means that a condition of the gate was set.
	EventActionSetCondition = "SetCondition"
)

// EventReporter is who Events say that they are from.
const EventReporter = "nodegate.dev/controller"
