// SPDX-License-Identifier: Apache-2.0

//go:build race

package expression

// raceFactor is how much more evaluations may allocate: with the race detector, sync.Pool
// drops objects at random, such as the machines of regular expressions.
const raceFactor = 16
