// SPDX-License-Identifier: Apache-2.0

// Package gate is the core of nodegate. Decide returns the desired state of a node,
// with the reasons, given the gates, the facts about the node and the current time.
//
// The package is pure: it has no client, clock, logger or source of randomness,
// performs no I/O and starts no goroutines. The controller and all tools call Decide.
//
// Where to find what:
//
//	decide.go, slot.go, taints.go      the steps of a decision, one gate in it, and its result
//	decision.go, messages.go           the result: Decision and Verdict, and texts about it
//	gate.go, signal.go, facts.go       what a decision reads: gates, signals, and facts about the node
//	object.go, device.go, podlist.go   facts about objects of any kind, devices, and all pods of a node
//	transient.go                       taints that do not determine which daemons belong on a node
//	record.go, recordscan.go           a gate's state on a node, in an annotation
//	accept.go, allowed.go, apart.go    which gates are in force, their taints, and gates on different nodes
//	birth.go                           Nodes that are being created
//	membership.go, idle.go             which other nodes become members
//	open.go, openedat.go               when a closed gate opens, and the annotation with that time
//	soak.go, minclosed.go, deadline.go, together.go    what it waits for besides its signals
//	groupmembers.go                    the nodes of one group, which the caller counts
//	reclose.go, boot.go, liveness.go   when an open gate closes again
//	budget.go                          how many nodes may be closed, which the caller counts
//	evidence.go, podmark.go, run.go    what counts as evidence of the current boot
//	follow.go, ring.go                 closeWhen, and gates that contradict each other
//	outofservice.go                    the taint that detaches volumes
//	mode.go, override.go               DryRun and Paused, and overrides of users
//	orphan.go, release.go              gates that no longer exist, or are to be removed from nodes
//	bypass.go, rejection.go            pods that started, or were rejected, while a gate was closed
//	condition.go                       conditions that gates publish on Nodes
//	parts.go, change.go                which gates must be decided after a change
//	times.go                           the earlier and the later of two times
package gate
