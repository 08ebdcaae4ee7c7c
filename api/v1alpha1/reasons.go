// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a NodeGate.
const (
	// ConditionReady is True when the gate is accepted and everything that it needs
	// is observed. For an openWhen gate, nodegate must also have proved that the API
	// server closes the gate when a Node is created.
	ConditionReady = "Ready"
	// ConditionAccepted is True when the gate is in force.
	ConditionAccepted = "Accepted"
	// ConditionOverdue is True while a node has passed its deadline and is still
	// closed, or was opened by the deadline and its signals have not all held
	// since.
	ConditionOverdue = "Overdue"
	// ConditionThrottled is True while nodes to be closed wait for budget.
	ConditionThrottled = "Throttled"
	// ConditionContended is True while another writer repeatedly reverts the taint,
	// or while gates contradict each other.
	ConditionContended = "Contended"
)

// Reasons of the conditions Accepted and Ready.
const (
	// ReasonAccepted means that the gate is in force.
	ReasonAccepted = "Accepted"
	// ReasonNoBootEvidence means that the gate is in force, but none of its signals
	// can prove that it reflects the current boot, or several nodes share a boot ID.
	ReasonNoBootEvidence = "NoBootEvidence"
	// ReasonStampNotAllowed means that the gate is in force, but
	// openedAtAnnotation is not written because the administrator has not allowed
	// the annotation.
	ReasonStampNotAllowed = "StampNotAllowed"
	// ReasonInvalidSpec means that the gate violates a rule of the API.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonTaintKeyNotAllowed means that the administrator has not allowed the
	// taint's key, or that no gate may have it.
	ReasonTaintKeyNotAllowed = "TaintKeyNotAllowed"
	// ReasonTaintConflict means that several gates specify the same taint key and
	// effect with different values. The oldest of these gates is in force; the
	// others are not.
	ReasonTaintConflict = "TaintConflict"
	// ReasonOwnedByNodeReadinessRule means that a NodeReadinessRule manages the
	// taint's key.
	ReasonOwnedByNodeReadinessRule = "OwnedByNodeReadinessRule"

	// ReasonInDryRun means that the gate is evaluated and does not change nodes,
	// because its mode is DryRun.
	ReasonInDryRun = string(ReasonDryRun)
	// ReasonPaused means that the gate neither opens nor closes on nodes, because
	// its mode is Paused.
	ReasonPaused = string(ReadingPaused)

	// ReasonReady means that the gate has no problems.
	ReasonReady = "Ready"
	// ReasonNotAccepted means that the gate is not in force. The condition Accepted
	// has the reason.
	ReasonNotAccepted = "NotAccepted"
	// ReasonCompiling means that the gate's expressions are being compiled.
	ReasonCompiling = "Compiling"
	// ReasonFeedsNotSynced means that a resource that the gate needs is not synced.
	ReasonFeedsNotSynced = "FeedsNotSynced"
	// ReasonBirthNotProved means that the API server did not close the gate on a
	// probe node, or that it may still close a gate on new nodes that must not
	// close there.
	ReasonBirthNotProved = "BirthNotProved"
	// ReasonTolerationsNotWritten means that the gate sets tolerate, but nodegate
	// could not write which DaemonSets need its tolerations.
	ReasonTolerationsNotWritten = "TolerationsNotWritten"
	// ReasonGuardNotProved means that the API server did not reject a probe that
	// one of the policies that protect nodegate must reject. Gates work without
	// these policies.
	ReasonGuardNotProved = "GuardNotProved"
	// ReasonDaemonSetNotFound means that a DaemonSet that the gate names does not
	// exist.
	ReasonDaemonSetNotFound = string(ReadingDaemonSetNotFound)
	// ReasonDaemonSetBeingDeleted means that a DaemonSet that the gate names is being
	// deleted.
	ReasonDaemonSetBeingDeleted = string(ReadingDaemonSetBeingDeleted)
	// ReasonDaemonDoesNotTolerateGate means that the gate is deadlocked: it waits
	// for a daemon that cannot run while the gate is closed.
	ReasonDaemonDoesNotTolerateGate = string(ReadingDaemonDoesNotTolerateGate)
	// ReasonGatesDeadlocked means that two gates are deadlocked: each waits for a
	// daemon that does not tolerate the other's taint.
	ReasonGatesDeadlocked = "GatesDeadlocked"
	// ReasonWriteDenied means that the API server rejects the node writes that the
	// gate requires.
	ReasonWriteDenied = "WriteDenied"
	// ReasonWriteFailing means that the node writes that the gate requires have
	// failed for at least a minute for other reasons, such as a webhook that does
	// not answer.
	ReasonWriteFailing = "WriteFailing"

	// ReasonPermissionMissing means that nodegate lacks a permission that the gate
	// requires.
	ReasonPermissionMissing = "PermissionMissing"

	// ReasonContended means that another writer repeatedly reverts the taint.
	ReasonContended = "Contended"
	// ReasonGatesContradict means that gates would open and close each other
	// endlessly. These gates keep their current state.
	ReasonGatesContradict = "GatesContradict"
	// ReasonThrottled means that nodes to be closed wait for budget.
	ReasonThrottled = "Throttled"
	// ReasonOverdue means that nodes have passed the deadline.
	ReasonOverdue = string(ReasonDeadlinePassed)
)

// Reason is the reason for a gate's state on a node. It appears in records,
// logs and metrics.
type Reason string

// Reasons for closing.
const (
	// ReasonBirth means that the node is new.
	ReasonBirth Reason = "Birth"
	// ReasonAdopted means that the node already carried the taint.
	ReasonAdopted Reason = "Adopted"
	// ReasonExisting means that the gate closed because of existingNodes.
	ReasonExisting Reason = "Existing"
	// ReasonExistingIdle means that the gate closed because of existingNodes on a
	// node that was idle, and that the controller will check the node once more.
	// The reason then changes to ReasonExisting, or the gate opens.
	ReasonExistingIdle Reason = "ExistingIdle"
	// ReasonRebooted means that the node rebooted: its boot ID has just changed.
	ReasonRebooted Reason = "Rebooted"
	// ReasonRebootedUnobserved means that the node rebooted while nodegate did not
	// watch it or the gate did not act, and that a signal has not held since.
	ReasonRebootedUnobserved Reason = "RebootedUnobserved"
	// ReasonNodeSilent means that the node is unreachable (Ready is Unknown).
	ReasonNodeSilent Reason = "NodeSilent"
	// ReasonNodeShutdown means that the node announced its shutdown.
	ReasonNodeShutdown Reason = "NodeShutdown"
	// ReasonRegression means that a signal stopped holding.
	ReasonRegression Reason = "Regression"
	// ReasonGroupIncomplete means that fewer nodes of the node's group were fit than
	// openTogether.atLeast requires (closeTogether: WhenIncomplete).
	ReasonGroupIncomplete Reason = "GroupIncomplete"
	// ReasonOverrideEnded means that a manual override ended and the gate returned
	// to its own state. As a reason for closing, the override had kept a closed
	// gate open. As a reason for opening, the override had kept an open gate
	// closed.
	ReasonOverrideEnded Reason = "OverrideEnded"
)

// ReasonOverridden means that a manual override sets the gate's state on the
// node for a limited time. It is a reason for closing and for opening.
const ReasonOverridden Reason = "Overridden"

// ReasonSignalsHold means that all signals hold. It is a reason for opening an
// openWhen gate and for closing a closeWhen gate.
const ReasonSignalsHold Reason = "SignalsHold"

// Reasons for opening.
const (
	// ReasonSignalsCleared means that a signal of a closeWhen gate no longer holds.
	ReasonSignalsCleared Reason = "SignalsCleared"
	// ReasonDeadlinePassed means that the gate opened because its deadline passed,
	// regardless of its signals. It changes to ReasonSignalsHold when all signals
	// hold.
	ReasonDeadlinePassed Reason = "DeadlinePassed"
	// ReasonNodeReturned means that a node that was out of service is reporting
	// again. The gate opens regardless of its signals.
	ReasonNodeReturned Reason = "NodeReturned"
	// ReasonOpenedByHand means that a user removed the taint of a gate with reopen
	// Manual.
	ReasonOpenedByHand Reason = "OpenedByHand"
	// ReasonGateDeleted means that the gate no longer exists.
	ReasonGateDeleted Reason = "GateDeleted"
	// ReasonNotSelected means that the gate no longer selects the node.
	ReasonNotSelected Reason = "NotSelected"
	// ReasonDryRun means that the gate's mode was changed to DryRun, which opens
	// the gate on the nodes that it closed.
	ReasonDryRun Reason = "DryRun"
	// ReasonOptedOut means that the node is excluded from all gates (OptOutLabel).
	ReasonOptedOut Reason = "OptedOut"
	// ReasonNotIdle means that the gate was closed because the node was idle, but
	// the node turned out not to be idle.
	ReasonNotIdle Reason = "NotIdle"
)

// Reasons of Events about nodes.
const (
	// EventGateOpened means that one write opened gates on the node.
	EventGateOpened = "GateOpened"
	// EventGateClosed means that one write closed gates on the node. There is no
	// Event for gates that the API server closed while the Node was created.
	EventGateClosed = "GateClosed"
	// EventBypassedPods means that pods started on the node while a gate was
	// closed.
	EventBypassedPods = "BypassedPods"
	// EventBypassedPodsRemain means that some of these pods could not be evicted.
	EventBypassedPodsRemain = "BypassedPodsRemain"
	// EventRejectedPods means that the node's kubelet rejected pods while a gate was
	// closed.
	EventRejectedPods = "RejectedPods"
	// EventDeadlinePassed means that a gate has been closed on the node for longer
	// than its deadline allows.
	EventDeadlinePassed = string(ReasonDeadlinePassed)
	// EventOverrideRefused means that an override was removed from the node before
	// its end because it could not be applied.
	EventOverrideRefused = "OverrideRefused"
)

// Reasons of Events about gates. Each reports a change of a condition.
const (
	// EventAccepted means that a gate came into force.
	EventAccepted = ReasonAccepted
	// EventNotAccepted means that a gate is not in force.
	EventNotAccepted = ReasonNotAccepted
	// EventReady means that a gate became ready.
	EventReady = ReasonReady
	// EventNotReady means that a gate that was ready has a problem.
	EventNotReady = "NotReady"
	// EventOverdue means that nodes have passed the gate's deadline, and that none
	// had before.
	EventOverdue = "Overdue"
	// EventNotOverdue means that there are no longer any nodes that have passed the
	// gate's deadline.
	EventNotOverdue = "NotOverdue"
	// EventThrottled means that nodes to be closed started to wait for budget.
	EventThrottled = ReasonThrottled
	// EventNotThrottled means that no node waits for budget any longer.
	EventNotThrottled = "NotThrottled"
	// EventContended means that another writer started to revert the taint
	// repeatedly.
	EventContended = ReasonContended
	// EventNotContended means that no other writer reverts the taint any longer.
	EventNotContended = "NotContended"
)

// Actions of Events: the action that was taken on the node or gate that the
// Event is about. That of EventBypassedPods is the gate's bypassedPods: Report,
// Hold or Evict.
const (
	// EventActionOpen means that gates were opened on the node.
	EventActionOpen = "Open"
	// EventActionClose means that gates were closed on the node.
	EventActionClose = "Close"
	// EventActionKeepClosed means that a gate was kept closed.
	EventActionKeepClosed = string(DeadlineKeepClosed)
	// EventActionReport means that pods were reported but not changed.
	EventActionReport = string(BypassedReport)
	// EventActionHold means that pods were reported that the agent should have held.
	EventActionHold = string(BypassedHold)
	// EventActionEvict means that pods are evicted.
	EventActionEvict = string(BypassedEvict)
	// EventActionWithdraw means that an override was removed from the node.
	EventActionWithdraw = "Withdraw"
	// EventActionSetCondition means that a condition of the gate was set.
	EventActionSetCondition = "SetCondition"
)

// NonMemberReason is the reason why a node that a gate selects is not a member
// of the gate.
type NonMemberReason string

// Reasons why selected nodes are not members.
const (
	// NonMemberCreatedBeforeGate means that the node was created before the gate
	// (existingNodes: Ignore).
	NonMemberCreatedBeforeGate NonMemberReason = "CreatedBeforeGate"
	// NonMemberNotClosedAtBirth means that the node was created after the gate but
	// was not closed within ten minutes: it got its labels later, the gate was not
	// in force, or the API server did not close it (existingNodes: Ignore).
	NonMemberNotClosedAtBirth NonMemberReason = "NotClosedAtBirth"
	// NonMemberNotAccepted means that the gate is not accepted.
	NonMemberNotAccepted NonMemberReason = "NotAccepted"
	// NonMemberPaused means that the gate is paused.
	NonMemberPaused NonMemberReason = "Paused"
	// NonMemberBlocked means that the node is unreachable, shutting down or being
	// set up.
	NonMemberBlocked NonMemberReason = "Blocked"
	// NonMemberSignalsUnknown means that a signal is unknown.
	NonMemberSignalsUnknown NonMemberReason = "SignalsUnknown"
	// NonMemberSignalsDoNotHold means that a signal does not hold (existingNodes: Adopt).
	NonMemberSignalsDoNotHold NonMemberReason = "SignalsDoNotHold"
	// NonMemberWaitsForTurn means that the signals hold, and that the node waits
	// because existing nodes become members one after another.
	NonMemberWaitsForTurn NonMemberReason = "WaitsForTurn"
	// NonMemberWaitsForBudget means that the node is to be closed, but that the
	// budget is used up.
	NonMemberWaitsForBudget NonMemberReason = "WaitsForBudget"
	// NonMemberPodsNotListed means that the pods on the node have not been listed
	// yet (existingNodes: CloseIfIdle).
	NonMemberPodsNotListed NonMemberReason = "PodsNotListed"
	// NonMemberNotIdle means that the node runs pods other than daemons (existingNodes:
	// CloseIfIdle).
	NonMemberNotIdle NonMemberReason = "NotIdle"
)
