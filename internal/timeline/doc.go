// SPDX-License-Identifier: Apache-2.0

// Package timeline reconstructs a node's history from its creation to its first workload:
// when it was created and became ready, when each signal of each gate started to hold,
// when the gates opened, and when the first workload pod was bound. It does no I/O.
//
// It has only the information that the API server stores, which is the latest event of
// each kind: the last transition of a condition, the last opening in a record, and the
// pods that still exist. If this is not, or may not be, the first event of its kind, a
// Doubt specifies why. Nothing is guessed.
package timeline
