// SPDX-License-Identifier: Apache-2.0

// Package expression compiles CEL expressions over the facts about a node, and
// evaluates them. It has no side effects.
//
// An expression depends only on facts. It has no variable or function for the current
// time, and loops iterate over maps in the order of their keys, so its result changes only
// when a fact changes. Expressions over devices are evaluated by the scheduler's code, in
// which maps have no order.
package expression
