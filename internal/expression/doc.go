// SPDX-License-Identifier: Apache-2.0

// Package expression compiles CEL expressions over the facts about a node, and
// evaluates them. It computes, and does nothing else.
//
// An expression depends on facts alone: there is no variable and no function
// for the present time, so that it changes only when a fact does.
package expression
