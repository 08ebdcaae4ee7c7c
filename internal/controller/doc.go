// SPDX-License-Identifier: Apache-2.0

// Package controller decides about nodes and writes the decisions, with one queue of node
// names, a fixed number of workers, and one patch per decision.
//
//	facts change ─▶ queue ─▶ gather ─▶ gate.Decide ─▶ apply ─▶ account, requeue
//
// Where to find what:
//
//	run.go, replica.go, start.go       a process, its terms as leader, and what runs in a term
//	work.go, node.go, partial.go       the workers, and the reconcile of a node or of some of its gates
//	denied.go                          writes that the API server denies for one of several gates
//	nodestate.go, carried.go           what is kept of a node between two reconciles
//	transitions.go, signalwait.go      what is reported after a write
//	status.go, conditions.go           the status of gates
//	budget.go, groups.go               budgets and groups, which package fleet counts
//	contention.go, deadline.go, deadlock.go, permissions.go    what the status reports as problems
//	watchdog.go, liveness.go, probes.go                        the health of the process
//	debughandler.go                    the state of one node, on the metrics port
package controller
