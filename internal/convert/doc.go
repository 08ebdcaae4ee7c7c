// SPDX-License-Identifier: Apache-2.0

// Package convert turns the configuration of other tools that taint nodes into
// NodeGates. It keeps what the configuration means; what cannot be kept exactly
// is told as a note, and where meaning would be lost the input is refused as a
// whole, by line. It reads no files and asks no cluster: bytes in, gates and
// findings out.
package convert
