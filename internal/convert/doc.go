// SPDX-License-Identifier: Apache-2.0

// Package convert converts the configuration of other tools that taint nodes to
// NodeGates. It preserves the meaning of the configuration. Differences are reported as
// notes, by line. If meaning would be lost, the whole input is rejected. The package does
// no I/O: it gets bytes, and returns gates and findings.
package convert
