// SPDX-License-Identifier: Apache-2.0

// Package timeline says how a node came to be fit for work: when it was created,
// became ready, when each signal of each gate began to hold, when the gates opened
// and when the first pod of a workload came. It computes, and does nothing else.
//
// It knows no more than the API server keeps, which is the last of everything: of a
// condition the last transition, of a record the last opening, of pods those that
// are still there. Where that cannot be the first time, or may not be, a Doubt says
// so; nothing is guessed.
package timeline
