// SPDX-License-Identifier: Apache-2.0

// Package cluster is the shell around the core: it watches the API server and
// keeps what it sees as compact facts (Feed), and writes decisions to Nodes
// (Writer). It decides nothing.
//
// Facts are only as good as the watch they come from. A feed is live from the
// moment it has read everything until its watch is lost and cannot be resumed
// at once; what comes from a feed that is not live is told as unknown rather
// than as it was. Events may be lost, late or doubled: whatever a callback
// announces is read again from the Feed.
package cluster
