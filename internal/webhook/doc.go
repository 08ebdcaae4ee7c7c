// SPDX-License-Identifier: Apache-2.0

// Package webhook closes gates at a node's birth where the API server cannot do
// it by a policy of its own: it answers, for a Node that is being created, with
// the patch that the birth policy would have made. It never refuses a Node, and
// knows no client: what it needs are the gates.
package webhook
