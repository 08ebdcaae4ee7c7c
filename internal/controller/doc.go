// SPDX-License-Identifier: Apache-2.0

// Package controller decides about nodes and writes the decisions, with one queue of node
// names, a fixed number of workers, and one patch per decision.
//
//	facts change ─▶ queue ─▶ gather ─▶ gate.Decide ─▶ apply ─▶ account, requeue
package controller
