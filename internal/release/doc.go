// SPDX-License-Identifier: Apache-2.0

// Package release takes gates off nodes with the rights of whoever asks: taints,
// records and overrides. It rests on nothing but what stands on the nodes, so that
// it works where the controller, the CustomResourceDefinition and the policies are
// gone. What is to go from a node is decided by gate.Release.
package release
