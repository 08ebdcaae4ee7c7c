// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// looks knows what is to be looked at when a node is next taken up: what has changed
// since it last was, if all else is known to be at rest, or else everything.
//
// A node is at rest if its last look left nothing to do: it was settled (see
// gate.Decision), in the light of the gates as they are still, and what it asked for was
// carried out. Whoever has a node taken up without telling what has changed, because
// time has passed, the gates have changed or a write is to be tried again, has
// everything looked at.
type looks struct {
	mu sync.Mutex
	// told is what has changed of the nodes that wait to be taken up.
	told map[string]gate.Change
	// resting are the nodes at rest in the light of the gates of this number, and when
	// they have to be looked at in any case: zero for never.
	resting map[string]time.Time
	seq     uint64
}

func newLooks() *looks {
	return &looks{told: make(map[string]gate.Change), resting: make(map[string]time.Time)}
}

// tell tells what has changed of a node. It is to be added to the queue then.
func (l *looks) tell(node string, change gate.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[node] = l.told[node].And(change)
}

// renew takes note that there is another set of gates, in the light of which no node
// has been looked at.
func (l *looks) renew(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq = seq
	clear(l.resting)
}

// begin returns what has to be looked at of a node that is taken up, before anything is
// gathered, and when it has to be looked at in any case. Until it rests again, it is not
// at rest.
func (l *looks) begin(node string, seq uint64, now time.Time) (gate.Change, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change := l.told[node]
	until, rests := l.resting[node]
	delete(l.told, node)
	delete(l.resting, node)
	due := !until.IsZero() && !now.Before(until)
	if !rests || due || seq != l.seq || change.IsNothing() {
		return gate.Everything(), time.Time{}
	}
	return change, until
}

// rest takes note that a node is at rest, until a time, in the light of the gates of
// this number.
func (l *looks) rest(node string, seq uint64, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq == l.seq {
		l.resting[node] = until
	}
}

// forget drops what is kept of a node that is gone. What has been told since, of another
// of its name, stays.
func (l *looks) forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.resting, node)
}

// begin returns the gates that have to be decided about for a node that is taken up, all
// or a part, and when the node has to be looked at in any case.
func (c *Controller) begin(node string, set *gateset.Set, now time.Time) (*gateset.Set, time.Time) {
	change, until := c.looks.begin(node, set.Seq, now)
	if part, some := set.Parts.Touched(change); some {
		return set.Only(part), until
	}
	return set, time.Time{}
}

// stand takes over how a node stands by what was decided about all gates, or a part, and
// whether it was carried out.
func (c *Controller) compactState(set *gateset.Set, node string, standings []fleet.GateState, written bool) {
	switch {
	case set.Part != nil:
		c.ledger.Amend(node, standings, set.Scope(), written)
	case written:
		c.ledger.Set(node, standings, set.Seq)
	default:
		c.ledger.Note(node, standings, set.Seq)
	}
}
