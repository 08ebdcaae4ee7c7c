// SPDX-License-Identifier: Apache-2.0

// Package packed keeps facts about Nodes and Pods in little memory: each is one
// short string, which is unpacked when a decision is due. Nothing is lost:
// whatever is packed comes back as it was, but for times, which come back in
// UTC.
//
// What makes them short: texts that many objects share, such as labels, are
// numbers (see Dictionary); UUIDs are 16 bytes; times are differences; what an
// object says twice, such as its name, is said once. Few pointers are left for
// the garbage collector to follow.
package packed
