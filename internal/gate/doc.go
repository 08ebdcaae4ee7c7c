// SPDX-License-Identifier: Apache-2.0

// Package gate is the core of nodegate. Decide returns the desired state of a node,
// with the reasons, given the gates, the facts about the node and the current time.
//
// The package is pure: it has no client, clock, logger or source of randomness,
// performs no I/O and starts no goroutines. The controller and all tools call Decide.
package gate
