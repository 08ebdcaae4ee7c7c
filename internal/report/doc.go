// SPDX-License-Identifier: Apache-2.0

// Package report computes how long the nodes of a cluster took from creation until their
// gates opened, and renders the result as a self-contained HTML file. It does no I/O
// except to the given writer.
package report
