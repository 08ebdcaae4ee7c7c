// SPDX-License-Identifier: Apache-2.0

// Package webhook closes gates on new nodes if the API server does not support the
// birth policy: for a Node that is being created, it answers with the same patch as
// the policy. It never rejects a Node. It uses no client; the caller provides the
// gates.
package webhook
