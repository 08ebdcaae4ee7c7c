// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"maps"
	"slices"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// boots records how the current boots of nodes began, as far as that was observed. It has
// entries for few nodes: all others have not rebooted since the nodes were first listed.
type boots struct {
	byName map[string]gate.Boot
	ready  readySince
	// began is the time at which all nodes were first listed.
	began time.Time
	// knownPods returns what is known of the pods on a node.
	knownPods func(node string) []gate.Incarnation
	// deleted is when Nodes were observed to be deleted, for at least deletedFor. cleaned is when
	// older entries were last removed.
	deleted map[string]time.Time
	cleaned time.Time
}

// deletedFor is how long a deletion is remembered. After that, creation times show which pods are
// older than the Node.
const deletedFor = time.Minute

func newBoots(knownPods func(node string) []gate.Incarnation) boots {
	return boots{
		byName: make(map[string]gate.Boot), ready: newReadySince(), deleted: make(map[string]time.Time), knownPods: knownPods,
	}
}

// of returns what was observed of a node's boot.
func (b *boots) of(name string) gate.Boot {
	if boot, named := b.byName[name]; named {
		return boot
	}
	return gate.Boot{Seen: b.began}
}

// add records a node that is new in the watch or in a response.
func (b *boots) add(name string, at time.Time) {
	seen := gate.Boot{Seen: at}
	if then, replaced := b.deleted[name]; replaced && at.Sub(then) <= deletedFor {
		seen.Known = b.knownPods(name)
	}
	delete(b.deleted, name)
	b.byName[name] = seen
	b.ready.set(name, at)
}

// update records a later state of a node from the watch, or from a response that is ahead of it.
func (b *boots) update(old, now *gate.Node, at time.Time, ahead bool) {
	b.ready.update(old, now, at)
	if old.UID == now.UID && old.BootID == now.BootID {
		return
	}
	seen := gate.Boot{Seen: at}
	if old.UID != now.UID || old.BootID != "" { // it is not just the first report of a boot
		seen.Known = b.knownPods(now.Name)
	}
	if old.UID == now.UID {
		seen.After, seen.Ahead = old.BootID, ahead
	}
	b.byName[now.Name] = seen
}

// pass records a state from the watch that is older than one from a response. The watch delivers
// every state, so the last other boot is the one before the boot that it has not reached.
func (b *boots) pass(late, stored *packed.Node) {
	if boot := b.byName[late.Name]; boot.Ahead && late.UID() == stored.UID() && late.BootID() != stored.BootID() {
		boot.After = late.BootID()
		b.byName[late.Name] = boot
	}
}

// passList records a state from a list that is older than one from a response. If it is already of
// the same boot, it is unknown which boot was before.
func (b *boots) passList(late, stored *packed.Node) {
	if boot := b.byName[late.Name]; boot.Ahead && !b.differs(late, stored) {
		b.byName[late.Name] = gate.Boot{Seen: boot.Seen, Ahead: true}
	}
	b.pass(late, stored)
}

// caughtUp records that the watch has delivered the stored state of a node or a later one. It
// reports whether the node's boot was ahead.
func (b *boots) caughtUp(name string) bool {
	boot := b.byName[name]
	if !boot.Ahead {
		return false
	}
	if boot.Ahead = false; boot.After != "" {
		boot.Known = b.knownPods(name)
	}
	b.byName[name] = boot
	return true
}

// relist records a node of a list, where old may be nil. How often the node has booted
// since the previous state is unknown, and so is when.
func (b *boots) relist(old, now *packed.Node, at time.Time) {
	if b.began.IsZero() {
		return
	}
	if old == nil {
		b.ready.set(now.Name, at)
	} else if !packed.SameFacts(old, now) {
		b.ready.update(old.Unpack(), now.Unpack(), at)
	}
	if b.differs(old, now) || b.byName[now.Name].Ahead {
		b.byName[now.Name] = gate.Boot{Seen: at}
	}
}

// allListed records that all nodes have been listed.
func (b *boots) allListed(at time.Time) {
	if b.began.IsZero() {
		b.began = at
	}
}

// SameBoot returns the names of nodes whose boot ID equals that of another node. It
// visits all nodes.
func (s *Store) SameBoot() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	first, named := make(map[string]string, len(s.byName)), make(map[string]bool)
	for name, n := range s.byName {
		boot := n.BootID()
		if boot == "" {
			continue
		}
		if other, same := first[boot]; same {
			named[other], named[name] = true, true
		} else {
			first[boot] = name
		}
	}
	return slices.Collect(maps.Keys(named))
}

// forget records that a Node was deleted.
func (b *boots) forget(name string, at time.Time) {
	delete(b.byName, name)
	delete(b.ready.byName, name)
	if at.Sub(b.cleaned) > deletedFor { // not for each of many nodes that are deleted at once
		maps.DeleteFunc(b.deleted, func(_ string, then time.Time) bool { return at.Sub(then) > deletedFor })
		b.cleaned = at
	}
	b.deleted[name] = at
}

// differs reports whether two states of a node belong to different boots or different
// Nodes.
func (b *boots) differs(old, now *packed.Node) bool {
	switch {
	case old == nil:
		return true
	case packed.SameFacts(old, now):
		return false
	}
	return old.UID() != now.UID() || old.BootID() != now.BootID()
}
