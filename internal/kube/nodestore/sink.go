// SPDX-License-Identifier: Apache-2.0

package nodestore

import "github.com/nodegate/nodegate/internal/kube/packed"

// Sink stores the nodes of one reflector, packed by Store.Pack. It ignores everything if the
// reflector does not read all that is needed.
type Sink struct {
	store   *Store
	version int
}

// Sink returns a Sink for a reflector that reads what was needed at this Store.NeededVersion.
func (s *Store) Sink(neededVersion int) Sink { return Sink{store: s, version: neededVersion} }

// Put implements reflector.Sink.
func (s Sink) Put(n *packed.Node) { s.ifCurrent(func() []nodeChange { return s.store.put(n) }) }

// Drop implements reflector.Sink.
func (s Sink) Drop(n *packed.Node) { s.ifCurrent(func() []nodeChange { return s.store.drop(n) }) }

// Replace implements reflector.Sink.
func (s Sink) Replace(nodes []*packed.Node) { s.ReplaceAt(nodes, "") }

// ReplaceAt implements reflector.VersionedSink.
func (s Sink) ReplaceAt(nodes []*packed.Node, version string) {
	s.ifCurrent(func() []nodeChange {
		s.store.readVersion = s.version
		return s.store.replaceAt(nodes, version)
	})
}

func (s Sink) ifCurrent(change func() []nodeChange) {
	s.store.update(func() []nodeChange {
		if s.version != s.store.neededVersion {
			return nil
		}
		return change()
	})
}
