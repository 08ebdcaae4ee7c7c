// SPDX-License-Identifier: Apache-2.0

package feed

import "time"

// silences contains when nodes were observed to become unreachable, by the clock of this process.
// Nodes that were unreachable when they were first observed are not in it: it is unknown how long
// they have been.
type silences map[string]time.Time

// update records a later state of a node, where either state may be nil.
func (s silences) update(old, now *resident, at time.Time) {
	switch {
	case now == nil:
		if old != nil {
			delete(s, old.name)
		}
	case !now.unreachable:
		delete(s, now.name)
	case old != nil && !old.unreachable:
		s[now.name] = at
	}
}
