// SPDX-License-Identifier: Apache-2.0

// Package packed stores facts about Nodes and Pods in little memory: each object is one
// short string, which is unpacked for a decision. Packing is lossless, except that times
// are returned in UTC.
//
// The strings are short because texts that many objects share, such as labels, are
// replaced by numbers (see Dictionary), UUIDs take 16 bytes, times are stored as
// differences, and texts that an object repeats, such as its name, are stored once. There
// are few pointers for the garbage collector to follow.
package packed
