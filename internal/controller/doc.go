// SPDX-License-Identifier: Apache-2.0

// Package controller turns facts into decisions and decisions into writes: one
// queue of node names, a handful of workers, one patch for each decision.
//
//	facts change ─▶ queue ─▶ gather ─▶ gate.Decide ─▶ apply ─▶ account, requeue
package controller
