// SPDX-License-Identifier: Apache-2.0

// Package gate is the core of nodegate: given the gates, the facts about one
// node and the time, Decide says what should be on that node and why.
//
// The package is pure. It has no client, no clock, no logger and no
// randomness; it does no I/O and starts nothing. Everything that decides, in
// the controller or anywhere else, calls Decide.
package gate
