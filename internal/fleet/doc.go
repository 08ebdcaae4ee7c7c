// SPDX-License-Identifier: Apache-2.0

// Package fleet keeps the state of every gate on every node, as last decided and
// written, and the budgets that limit how many nodes may be closed at once. Status,
// metrics and budgets are computed from it.
package fleet
