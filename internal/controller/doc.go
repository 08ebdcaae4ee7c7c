// SPDX-License-Identifier: Apache-2.0

// Package controller decides about nodes and writes the decisions, with one queue of node
// names, a fixed number of workers, and one patch per decision.
//
//	facts change ─▶ queue ─▶ gather ─▶ gate.Decide ─▶ apply ─▶ account, requeue
//
// Where to find what:
//
//	run.go, replica.go, start.go       a process, its terms as leader, and what runs in a term
//	controller.go, feed.go             the controller of a term, its gates, and what it observes
//	awaitfeeds.go, files.go            what a new leader waits for
//	work.go, node.go, partial.go       the workers, and the reconcile of a node or of some of its gates
//	nodecondition.go                   conditions of Nodes, which need a write of their own
//	denied.go                          writes that the API server denies for one of several gates
//	nodestate.go, carried.go           what is kept of a node between two reconciles
//	transitions.go, signalwait.go, override.go, deadline.go, mode.go    what is reported after a write
//	status.go, conditions.go, conditionlog.go                           the status of gates
//	contention.go, deadlock.go, permissions.go                          what the status reports as problems
//	budget.go, groups.go               budgets and groups, which package fleet counts
//	watchdog.go, liveness.go           the health of the process
//	ports.go, debughandler.go          the ports for metrics and probes, and the state of one node there
//	webhook.go                         the webhook that closes gates at birth
//	kinds.go                           the kinds of objects that the client reads and writes
package controller
