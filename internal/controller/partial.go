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
type partials struct {
	mu sync.Mutex
	// told is what has changed of the nodes that wait to be taken up.
	changes map[string]gate.Change
	// resting are the nodes at rest in the light of the gates of this number, and when
	// they have to be looked at in any case: zero for never.
	settled map[string]time.Time
	seq     uint64
}

func newPartials() *partials {
	return &partials{changes: make(map[string]gate.Change), settled: make(map[string]time.Time)}
}

// tell tells what has changed of a node. It is to be added to the queue then.
func (p *partials) addChange(node string, change gate.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes[node] = p.changes[node].And(change)
}

// renew takes note that there is another set of gates, in the light of which no node
// has been looked at.
func (p *partials) reset(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq = seq
	clear(p.settled)
}

// begin returns what has to be looked at of a node that is taken up, before anything is
// gathered, and when it has to be looked at in any case. Until it rests again, it is not
// at rest.
func (p *partials) take(node string, seq uint64, now time.Time) (gate.Change, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change := p.changes[node]
	until, settled := p.settled[node]
	delete(p.changes, node)
	delete(p.settled, node)
	due := !until.IsZero() && !now.Before(until)
	if !settled || due || seq != p.seq || change.IsNothing() {
		return gate.Everything(), time.Time{}
	}
	return change, until
}

// rest takes note that a node is at rest, until a time, in the light of the gates of
// this number.
func (p *partials) settle(node string, seq uint64, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq == p.seq {
		p.settled[node] = until
	}
}

// forget drops what is kept of a node that is gone. What has been told since, of another
// of its name, stays.
func (p *partials) forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.settled, node)
}

// begin returns the gates that have to be decided about for a node that is taken up, all
// or a part, and when the node has to be looked at in any case.
func (c *Controller) affected(node string, set *gateset.Set, now time.Time) (*gateset.Set, time.Time) {
	change, until := c.partials.take(node, set.Seq, now)
	if part, some := set.Parts.Touched(change); some {
		return set.Only(part), until
	}
	return set, time.Time{}
}

// stand takes over how a node stands by what was decided about all gates, or a part, and
// whether it was carried out.
func (c *Controller) recordStates(set *gateset.Set, node string, states []fleet.GateState, written bool) {
	switch {
	case set.Part != nil:
		c.ledger.Amend(node, states, set.Scope(), written)
	case written:
		c.ledger.Set(node, states, set.Seq)
	default:
		c.ledger.Note(node, states, set.Seq)
	}
}
