// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"maps"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
)

// readySince contains when nodes were observed to become Ready, by the clock of this process. Nodes
// that were Ready when they were first listed are not in it, and neither are those that have been
// Ready for longer than readySinceKept. A node that is new in the watch has not been Ready for longer
// than it has been observed.
type readySince struct {
	byName map[string]time.Time
	// cleaned is when old entries were last removed.
	cleaned time.Time
}

// readySinceKept is how long an entry is kept. Only the first minute matters, but a watch of pods may
// be behind for the three minutes after which it counts as stalled.
const readySinceKept = 10 * time.Minute

func newReadySince() readySince { return readySince{byName: make(map[string]time.Time)} }

// set records that a node is Ready since a time.
func (r *readySince) set(name string, at time.Time) {
	if at.Sub(r.cleaned) > readySinceKept {
		maps.DeleteFunc(r.byName, func(_ string, since time.Time) bool { return at.Sub(since) > readySinceKept })
		r.cleaned = at
	}
	r.byName[name] = at
}

// update records a later state of a node. If the time of the transition has changed, the node was not
// Ready in between.
func (r *readySince) update(old, now *gate.Node, at time.Time) {
	was, before := old.Liveness()
	is, since := now.Liveness()
	if is == gate.Ready && (was != gate.Ready || !since.Equal(before) || old.UID != now.UID) {
		r.set(now.Name, at)
	}
}
