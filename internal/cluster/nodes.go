// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// nodeStore keeps what is known of Nodes. What it keeps is immutable: a node that
// changes is replaced.
type nodeStore struct {
	// changed is called without locks.
	changed func(name string, change gate.Change)
	packer  *packed.Packer
	intern  *interner
	early   earlyNames

	mu     sync.RWMutex
	byName map[string]*packed.Node
	zones  zones
	// annotations are the keys, resources the names of resources and infos the
	// names of fields of nodeInfo that signals need. They only grow, and are replaced rather than changed.
	annotations, resources, infos map[string]bool
	// heartbeats tells whether heartbeats are news.
	heartbeats bool
	// wanted counts how often they grew; read is the count at which all nodes were
	// last read, or -1. Reflectors of an earlier count are not listened to.
	wanted, read int
}

func newNodeStore(changed func(string, gate.Change)) *nodeStore {
	return &nodeStore{
		changed: changed, packer: packed.NewPacker(packed.NewBooks()), intern: newInterner(), read: -1,
		byName: make(map[string]*packed.Node), zones: make(zones),
	}
}

// need adds what is needed of Nodes to what is kept of them, and says whether
// heartbeats are news.
func (s *nodeStore) need(n gate.Needs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeats = n.Heartbeats
	annotations, resources, infos := grow(&s.annotations, n.Annotations), grow(&s.resources, n.Resources), grow(&s.infos, n.NodeInfo)
	if annotations || resources || infos {
		s.wanted++
	}
}

// grow adds keys to a set, which it replaces, unless it has them all.
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

// current tells whether all nodes have been read with all that is needed.
func (s *nodeStore) current() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.read == s.wanted
}

// count is how often more came to be needed.
func (s *nodeStore) count() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.wanted
}

func (s *nodeStore) names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.byName))
}

// get returns what is known of a node, which is the caller's.
func (s *nodeStore) get(name string) (*gate.Node, gate.Zone, bool) {
	s.mu.RLock()
	n, ok := s.byName[name]
	if !ok {
		s.mu.RUnlock()
		return nil, gate.Zone{}, false
	}
	zone := s.zones.of(n.Zone())
	s.mu.RUnlock()
	return n.Unpack(), zone, true
}

// nameOf returns the name of a node in the memory that all share who keep it.
func (s *nodeStore) nameOf(name string) string {
	s.mu.RLock()
	n, known := s.byName[name]
	s.mu.RUnlock()
	if known {
		return n.Name
	}
	return s.early.name(name)
}

// observe takes in a Node that did not come by the watch. It does not bring
// back one that the watch has told to be gone.
func (s *nodeStore) observe(o *corev1.Node) {
	n := s.pack(o)
	s.update(func() []nodeNews {
		if _, known := s.byName[n.Name]; !known {
			return nil
		}
		return s.put(n)
	})
}

// forget drops a node that was found to be gone, unless it has been replaced
// meanwhile.
func (s *nodeStore) forget(gone *gate.Node) {
	s.update(func() []nodeNews {
		now, known := s.byName[gone.Name]
		if !known || now.UID() != gone.UID {
			return nil
		}
		return s.drop(now)
	})
}

// update changes the store, and tells which nodes changed by it.
func (s *nodeStore) update(change func() []nodeNews) {
	s.mu.Lock()
	all := change()
	s.mu.Unlock()
	for _, n := range all {
		s.changed(n.node, n.change)
	}
}

// put takes in a node, unless it is older than what is known. It returns the
// nodes of which a fact has changed.
func (s *nodeStore) put(n *packed.Node) []nodeNews {
	old, known := s.byName[n.Name]
	if known && older(n, old) {
		return nil
	}
	s.byName[n.Name] = n
	change := gate.Everything()
	if known {
		if change = s.news(old, n); change.IsNothing() {
			return nil
		}
	}
	return append(everythingOf(s.zones.move(residence(old), residence(n))), nodeNews{n.Name, change})
}

// news tells which facts about a node have changed, or its heartbeats where they are
// news. That none have is seen without unpacking them as a rule.
func (s *nodeStore) news(old, now *packed.Node) gate.Change {
	same := packed.SameFacts(old, now)
	if same && !s.heartbeats {
		return gate.Change{}
	}
	before, after := old.Unpack(), now.Unpack()
	switch {
	case !same && !sameFacts(before, after):
		return changeOf(before, after)
	case s.heartbeats && !sameHeartbeats(before, after):
		return gate.ChangeOf(gate.Aspect{Kind: gate.AspectHeartbeats})
	}
	return gate.Change{}
}

// drop forgets a node. Word of another Node that had its name before is late.
func (s *nodeStore) drop(n *packed.Node) []nodeNews {
	old, known := s.byName[n.Name]
	if !known || old.UID() != n.UID() && older(n, old) {
		return nil
	}
	delete(s.byName, n.Name)
	return everythingOf(append(s.zones.move(residence(old), nil), n.Name))
}

// replace takes in that these are all nodes: whatever else was known, also by
// way of observe, or from an API server whose data has since been restored to
// an earlier state, does not count any more.
func (s *nodeStore) replace(nodes []*packed.Node) []nodeNews {
	before := s.byName
	s.byName, s.zones = make(map[string]*packed.Node, len(nodes)), make(zones)
	for _, n := range nodes {
		s.byName[n.Name] = n
		s.zones.move(nil, residence(n))
	}
	s.early.forget()
	var gone []string
	for name := range before {
		if _, there := s.byName[name]; !there {
			gone = append(gone, name)
		}
	}
	return everythingOf(gone)
}

// older tells whether a is an earlier state than b. Resource versions of one
// resource are ordered, also between a Node and another that has its name
// later. What cannot be compared is taken to be newer.
func older(a, b *packed.Node) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion(), b.ResourceVersion())
	return err == nil && order < 0
}

// nodeSink is what one reflector of Nodes fills: the store, as long as the
// reflector reads all that is needed.
type nodeSink struct {
	*nodeStore
	count int
}

func (s nodeSink) put(n *packed.Node)  { s.listen(func() []nodeNews { return s.nodeStore.put(n) }) }
func (s nodeSink) drop(n *packed.Node) { s.listen(func() []nodeNews { return s.nodeStore.drop(n) }) }

func (s nodeSink) replace(nodes []*packed.Node) {
	s.listen(func() []nodeNews {
		s.read = s.count
		return s.nodeStore.replace(nodes)
	})
}

func (s nodeSink) listen(change func() []nodeNews) {
	s.update(func() []nodeNews {
		if s.count != s.wanted {
			return nil
		}
		return change()
	})
}
