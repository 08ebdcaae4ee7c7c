// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes nodegate from a cluster, regardless of how it was installed
// and how much of it is left. The order of its steps ensures that no node stays closed and
// that no permission outlasts the policy that confines it.
package uninstall
