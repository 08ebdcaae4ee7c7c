// SPDX-License-Identifier: Apache-2.0

// Package fleet keeps the state of every gate on every node, as last decided and
// written, the budgets that limit how many nodes may be closed at once, and the groups of
// nodes that open together. Status, metrics and budgets are computed from it.
package fleet
