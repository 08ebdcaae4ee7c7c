// SPDX-License-Identifier: Apache-2.0

// Package feed watches the API server and keeps what the gates' signals need of its
// objects as compact facts, indexed by node. It makes no decisions.
//
// A feed is live from the time when it has read everything until its watch is lost and
// cannot be resumed immediately. Facts of a feed that is not live are unknown. Events may
// be lost, late or duplicated: a callback only announces a change, and its receiver reads
// the facts again from the Feed.
package feed
