// SPDX-License-Identifier: Apache-2.0

// Package revisions holds what happened in a run: every revision of the objects that the
// judge reads, and the requests that wrote them. It returns the state at any revision, and
// when a revision can have been committed.
package revisions
