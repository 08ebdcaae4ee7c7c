// SPDX-License-Identifier: Apache-2.0

// Package nodestore stores the facts about all Nodes, as far as they are needed, and what was
// observed of each: how its boot began, and since when it has been Ready or unreachable.
package nodestore

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/intern"
	"github.com/nodegate/nodegate/internal/kube/nodediff"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// Store stores the facts about Nodes. Stored nodes are immutable: a node that changes is
// replaced. Its methods are safe for concurrent use.
type Store struct {
	// Packer packs the nodes, and Texts shares the memory of their texts. Stores of other
	// objects use them, too, because these objects contain the same texts.
	Packer *packed.Packer
	Texts  *intern.Texts

	changed func(name string, change gate.Change)
	early   earlyNames
	clock   clock.PassiveClock

	mu     sync.RWMutex
	byName map[string]*packed.Node
	zones  Zones
	boots  boots
	silent silences
	// observed contains the names of nodes whose state is from a response to nodegate's own
	// request, until the watch delivers that state or a later one.
	observed map[string]bool
	// listed is the resource version of the last list of all nodes.
	listed string
	// rewinds counts the lists of an earlier state than had been delivered before.
	rewinds atomic.Int64
	// annotations contains the annotation keys, resources the names of resources, and infos
	// the names of fields of nodeInfo that signals need. They only grow. The maps are
	// replaced rather than changed.
	annotations, resources, infos map[string]bool
	// heartbeats reports whether heartbeats must be announced.
	heartbeats bool
	// neededVersion counts how often these maps grew. readVersion is the count for which
	// all nodes were last read, or -1. Events of reflectors with an earlier count are
	// ignored.
	neededVersion, readVersion int
}

// Options are the options of a Store. All of them are optional.
type Options struct {
	// Changed is called when facts about a node have changed, with those facts, or when the
	// node has been deleted. It may call the Store.
	Changed func(name string, change gate.Change)
	// KnownPods returns what is known of the pods on a node. It is called while the Store is
	// locked.
	KnownPods func(node string) []gate.Incarnation
	// Clock determines when something was observed. Defaults to the real clock.
	Clock clock.PassiveClock
}

// New returns an empty Store.
func New(o Options) *Store {
	if o.Changed == nil {
		o.Changed = func(string, gate.Change) {}
	}
	if o.KnownPods == nil {
		o.KnownPods = func(string) []gate.Incarnation { return nil }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Store{
		clock: o.Clock, boots: newBoots(o.KnownPods), observed: make(map[string]bool),
		changed: o.Changed, Packer: packed.NewPacker(packed.NewDictionaries()), Texts: intern.New(), readVersion: -1,
		byName: make(map[string]*packed.Node), zones: make(Zones), silent: make(silences),
	}
}

// Need adds the annotations, resources and nodeInfo fields in n to those that are kept of
// Nodes, and specifies whether heartbeats must be announced.
func (s *Store) Need(n gate.Needs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeats = n.Heartbeats
	annotations, resources, infos := grow(&s.annotations, n.Annotations), grow(&s.resources, n.Resources), grow(&s.infos, n.NodeInfo)
	if annotations || resources || infos {
		s.neededVersion++
	}
}

// grow adds keys to a set by replacing it. It returns false if the set contains them all.
func grow(set *map[string]bool, keys []string) bool {
	if !slices.ContainsFunc(keys, func(key string) bool { return !(*set)[key] }) {
		return false
	}
	grown := make(map[string]bool, len(*set)+len(keys))
	maps.Copy(grown, *set)
	for _, key := range keys {
		grown[key] = true
	}
	*set = grown
	return true
}

// UpToDate reports whether all nodes have been read with everything that is needed.
func (s *Store) UpToDate() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.readVersion == s.neededVersion
}

// Rewinds returns how often all nodes were replaced by an earlier state than had been delivered.
func (s *Store) Rewinds() int64 { return s.rewinds.Load() }

// NeededVersion returns how many calls of Need have added something.
func (s *Store) NeededVersion() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.neededVersion
}

// Names returns the names of all nodes, those with taints first.
func (s *Store) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, len(s.byName))
	first, last := 0, len(names)-1
	for name, n := range s.byName {
		if n.Tainted() {
			names[first] = name
			first++
		} else {
			names[last] = name
			last--
		}
	}
	return names
}

// Get returns the facts Node, Boot, Zone, SilentSince and ReadySince about a node. The caller may
// modify them.
func (s *Store) Get(name string) (gate.Facts, bool) {
	s.mu.RLock()
	n, ok := s.byName[name]
	if !ok {
		s.mu.RUnlock()
		return gate.Facts{}, false
	}
	facts := gate.Facts{
		Zone: s.zones.Of(n.Zone()), Boot: s.boots.of(name), SilentSince: s.silent[name], ReadySince: s.boots.ready.byName[name],
	}
	s.mu.RUnlock()
	facts.Node = *n.Unpack()
	return facts, true
}

// Has reports whether a node is known.
func (s *Store) Has(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, known := s.byName[name]
	return known
}

// NameOf returns the name of a node as a string that shares memory with the stored one.
func (s *Store) NameOf(name string) string {
	s.mu.RLock()
	n, known := s.byName[name]
	s.mu.RUnlock()
	if known {
		return n.Name
	}
	return s.early.name(name)
}

// Observe stores a Node that was not delivered by the watch. It does not restore a node
// that the watch has reported as deleted.
func (s *Store) Observe(o *corev1.Node) {
	n := s.Pack(o)
	s.update(func() []nodeChange {
		known := s.byName[n.Name]
		if known == nil || older(n, known) {
			return nil
		}
		if older(known, n) { // otherwise the watch may have delivered this state
			s.observed[n.Name] = true
		}
		return s.take(n)
	})
}

// Forget drops a node that was found to be deleted, unless another Node of this name has
// replaced it.
func (s *Store) Forget(gone *gate.Node) {
	s.update(func() []nodeChange {
		now, known := s.byName[gone.Name]
		if !known || now.UID() != gone.UID {
			return nil
		}
		return s.drop(now)
	})
}

// update applies a change to the store, and announces the nodes that changed.
func (s *Store) update(change func() []nodeChange) {
	s.mu.Lock()
	all := change()
	s.mu.Unlock()
	for _, n := range all {
		s.changed(n.node, n.change)
	}
}

// put stores a node that the watch has delivered, unless the stored state is newer. It
// returns the nodes whose facts have changed.
func (s *Store) put(n *packed.Node) []nodeChange {
	if old, known := s.byName[n.Name]; known && older(n, old) {
		s.boots.pass(n, old)
		return nil
	}
	delete(s.observed, n.Name)
	changes := s.take(n)
	if s.boots.caughtUp(n.Name) {
		changes = append(changes, nodeChange{n.Name, gate.Everything()})
	}
	return changes
}

// take stores a node that is not older than the stored state.
func (s *Store) take(n *packed.Node) []nodeChange {
	old, known := s.byName[n.Name]
	s.byName[n.Name] = n
	change := gate.Everything()
	if !known {
		s.boots.add(n.Name, s.clock.Now())
	} else if change = s.diff(old, n); change.IsNothing() {
		return nil
	}
	return append(everythingChanged(s.move(old, n, s.clock.Now())), nodeChange{n.Name, change})
}

// move replaces a node's old state by its new one, either of which may be nil, where nodes are
// counted. It returns the nodes that this affects.
func (s *Store) move(old, now *packed.Node, at time.Time) []string {
	s.silent.update(old, now, at)
	return s.zones.move(residentOf(old), residentOf(now))
}

// diff returns which facts about a node have changed, including heartbeats if these must
// be announced, and records a new boot. If no facts have changed, this is usually
// determined without unpacking.
func (s *Store) diff(old, now *packed.Node) gate.Change {
	same := packed.SameFacts(old, now)
	if same && !s.heartbeats {
		return gate.Change{}
	}
	before, after := old.Unpack(), now.Unpack()
	s.boots.update(before, after, s.clock.Now(), s.observed[now.Name])
	switch {
	case !same && !nodediff.SameFacts(before, after):
		return nodediff.Of(before, after)
	case s.heartbeats && !nodediff.SameHeartbeats(before, after):
		return gate.ChangeOf(gate.Aspect{Kind: gate.AspectHeartbeats})
	}
	return gate.Change{}
}

// drop drops a node, unless the event concerns an earlier Node of the same name.
func (s *Store) drop(n *packed.Node) []nodeChange {
	old, known := s.byName[n.Name]
	if !known || old.UID() != n.UID() && older(n, old) {
		return nil
	}
	delete(s.byName, n.Name)
	delete(s.observed, n.Name)
	now := s.clock.Now()
	s.boots.forget(n.Name, now)
	return everythingChanged(append(s.move(old, nil, now), n.Name))
}

// replaceAt replaces all nodes by a list at a resource version. It keeps a node whose
// state is from a response to nodegate's own request and newer than the list, because the
// next decision must take that write into account. But if the list is older than what a
// list or the watch has delivered before, the data of the API server has been restored to
// an earlier state, and nothing is kept.
func (s *Store) replaceAt(nodes []*packed.Node, version string) []nodeChange {
	before, now := s.byName, s.clock.Now()
	restored := s.isRestored(version)
	if restored {
		s.rewinds.Add(1)
	}
	s.listed = version
	s.byName, s.zones = make(map[string]*packed.Node, len(nodes)), make(Zones)
	for _, n := range nodes {
		old := before[n.Name]
		if old != nil && s.observed[n.Name] && !restored && older(n, old) {
			s.boots.passList(n, old)
			n = old
		} else {
			delete(s.observed, n.Name)
			s.boots.relist(old, n, now)
		}
		s.byName[n.Name] = n
		s.silent.update(old, n, now)
		s.zones.move(nil, residentOf(n))
	}
	s.early.forget()
	s.boots.allListed(now)
	var gone []string
	for name := range before {
		if _, there := s.byName[name]; !there {
			gone = append(gone, name)
			delete(s.observed, name)
			delete(s.silent, name)
			s.boots.forget(name, now)
		}
	}
	return everythingChanged(gone)
}

// isRestored reports whether a list's resource version is older than what a list or the
// watch has delivered before.
func (s *Store) isRestored(version string) bool {
	if precedes(version, s.listed) {
		return true
	}
	for name, n := range s.byName {
		if !s.observed[name] && precedes(version, n.ResourceVersion()) {
			return true
		}
	}
	return false
}

// older reports whether a is an earlier state than b. Resource versions of one resource
// are ordered, even across Nodes of the same name. It returns false if they cannot be
// compared.
func older(a, b *packed.Node) bool { return precedes(a.ResourceVersion(), b.ResourceVersion()) }

// precedes reports whether a resource version is older than another. It returns false if
// they cannot be compared.
func precedes(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
