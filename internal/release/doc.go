// SPDX-License-Identifier: Apache-2.0

// Package release removes taints, records and overrides of gates from nodes, with the
// caller's credentials. It depends on the nodes only, so that it works if the
// controller, the CustomResourceDefinition and the policies no longer exist.
// gate.Release decides what is removed from a node.
package release
