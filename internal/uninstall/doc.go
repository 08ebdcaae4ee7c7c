// SPDX-License-Identifier: Apache-2.0

// Package uninstall takes nodegate out of a cluster, however it was installed and
// whatever is left of it, in an order in which no node is left closed and nobody
// has a right for longer than what confines it.
package uninstall
