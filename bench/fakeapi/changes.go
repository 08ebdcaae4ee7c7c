// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// changes contains the objects that differ from the fleet's templates, and the events of
// these changes. Everything else is not stored.
type changes struct {
	mu    sync.RWMutex
	nodes map[int]*corev1.Node
	pods  map[podKey]*corev1.Pod
	// joined is the number of Nodes that were added to the fleet.
	joined int
	log    []change
	// more is closed when the log has grown, and then replaced.
	more chan struct{}
}

// podKey identifies the pod of a daemon on a Node.
type podKey struct{ daemon, node int }

// noDaemon is the daemon of changes of Nodes.
const noDaemon = -1

// A change is an event: an object was added or modified. Its object is immutable.
type change struct {
	kind   watch.EventType
	daemon int
	object object
}

func newChanges() *changes {
	return &changes{nodes: make(map[int]*corev1.Node), pods: make(map[podKey]*corev1.Pod), more: make(chan struct{})}
}

// PutNode adds the i-th Node to the fleet, or replaces it. New Nodes must be added in order.
// The Node must not be modified afterwards, except by the caller's next PutNode.
func (s *Server) PutNode(i int, n *corev1.Node) {
	c := s.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := watch.Modified
	if i >= s.fleet.Nodes+c.joined {
		kind, c.joined = watch.Added, i+1-s.fleet.Nodes
	}
	version(n, "Node", c.next())
	c.nodes[i] = n
	c.add(change{kind, noDaemon, n})
}

// PutPod adds the pod of a daemon on the i-th Node, or replaces it.
func (s *Server) PutPod(daemon, i int, p *corev1.Pod) {
	c, key := s.changes, podKey{daemon, i}
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := watch.Modified
	if i >= s.fleet.Nodes && c.pods[key] == nil {
		kind = watch.Added
	}
	version(p, "Pod", c.next())
	c.pods[key] = p
	c.add(change{kind, daemon, p})
}

// next returns the resource version of the next change.
func (c *changes) next() int { return firstChange + len(c.log) }

func (c *changes) add(one change) {
	c.log = append(c.log, one)
	close(c.more)
	c.more = make(chan struct{})
}

// since returns the changes from a position in the log, and a channel that is closed when
// there are more.
func (c *changes) since(position int) ([]change, <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.log[min(position, len(c.log)):len(c.log):len(c.log)], c.more
}

// state returns the number of changes and of added Nodes.
func (c *changes) state() (position, joined int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.log), c.joined
}

// node returns a copy of the i-th Node. It returns nil if there is none.
func (s *Server) node(i int) *corev1.Node {
	s.changes.mu.RLock()
	defer s.changes.mu.RUnlock()
	if n := s.changes.nodes[i]; n != nil {
		shallow := *n
		return &shallow
	}
	if i < 0 || i >= s.fleet.Nodes {
		return nil
	}
	return version(s.fleet.Node(i), "Node", firstVersion+i).(*corev1.Node) //nolint:forcetypeassert // it is one
}

// pod returns the pod of a daemon on the i-th Node. It returns nil if there is none.
func (s *Server) pod(daemon, i int) *corev1.Pod {
	s.changes.mu.RLock()
	p := s.changes.pods[podKey{daemon, i}]
	s.changes.mu.RUnlock()
	if p != nil || i >= s.fleet.Nodes {
		return p
	}
	at := firstVersion + i*len(s.fleet.Daemons) + daemon
	return version(s.fleet.Daemons[daemon].Pod(i), "Pod", at).(*corev1.Pod) //nolint:forcetypeassert // it is one
}
