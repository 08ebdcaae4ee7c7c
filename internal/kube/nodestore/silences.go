// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"time"

	"github.com/nodegate/nodegate/internal/kube/packed"
)

// silences contains when nodes were observed to become unreachable, by the clock of this process.
// Nodes that were unreachable when they were first observed are not in it: it is unknown how long
// they have been.
type silences map[string]time.Time

// update records a later state of a node, where either state may be nil.
func (s silences) update(old, now *packed.Node, at time.Time) {
	switch {
	case now == nil:
		if old != nil {
			delete(s, old.Name)
		}
	case !now.Silent():
		delete(s, now.Name)
	case old != nil && !sameSilence(old, now):
		s[now.Name] = at
	}
}

// sameSilence reports whether a node was unreachable before, and has not returned since. A list may
// show it as unreachable twice, although it has returned in between.
func sameSilence(old, now *packed.Node) bool {
	if !old.Silent() || packed.SameFacts(old, now) {
		return old.Silent()
	}
	before, after := old.Unpack(), now.Unpack()
	_, since := before.Liveness()
	_, again := after.Liveness()
	return before.UID == after.UID && since.Equal(again)
}
