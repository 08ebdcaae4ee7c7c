// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"slices"
	"sort"
	"time"
)

// clock returns bounds for the time at which a revision was committed. etcd does not
// store times, but the audit log limits them: a revision was committed after the
// request for it, or for an earlier one, was received, and before the request for it,
// or for a later one, was answered.
type clock struct {
	// revisions are the revisions in the audit log, in order. For each of them,
	// received is the latest time at which a request for it or an earlier one was
	// received, and done is the earliest time at which a request for it or a later one
	// was answered.
	revisions      []int64
	received, done []time.Time
	end            time.Time
}

func newClock(writes []Write, from, to int64, end time.Time) clock {
	known := slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return w.Revision < from || w.Revision > to })
	sort.SliceStable(known, func(i, j int) bool {
		a, b := &known[i], &known[j]
		return a.Revision < b.Revision || a.Revision == b.Revision && a.Done.Before(b.Done)
	})
	c := clock{end: end}
	for _, w := range known {
		// Later responses with the same revision belong to requests that changed nothing.
		if n := len(c.revisions); n > 0 && c.revisions[n-1] == w.Revision {
			continue
		}
		c.revisions = append(c.revisions, w.Revision)
		c.received, c.done = append(c.received, w.Received), append(c.done, w.Done)
	}
	for i := 1; i < len(c.received); i++ {
		c.received[i] = slices.MaxFunc(c.received[i-1:i+1], time.Time.Compare)
	}
	for i := len(c.done) - 2; i >= 0; i-- {
		c.done[i] = slices.MinFunc(c.done[i:i+2], time.Time.Compare)
	}
	return c
}

// earliest returns the earliest time at which the revision can have been committed;
// zero if it is unknown.
func (c clock) earliest(revision int64) time.Time {
	i := sort.Search(len(c.revisions), func(i int) bool { return c.revisions[i] > revision })
	if i == 0 {
		return time.Time{}
	}
	return c.received[i-1]
}

// latest returns the latest time at which the revision can have been committed.
func (c clock) latest(revision int64) time.Time {
	i := sort.Search(len(c.revisions), func(i int) bool { return c.revisions[i] >= revision })
	if i == len(c.revisions) {
		return c.end
	}
	return c.done[i]
}

// reached returns the highest revision that was certainly committed at a time; 0 if there is none.
func (c clock) reached(at time.Time) int64 {
	i := sort.Search(len(c.done), func(i int) bool { return c.done[i].After(at) })
	if i == 0 {
		return 0
	}
	return c.revisions[i-1]
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
