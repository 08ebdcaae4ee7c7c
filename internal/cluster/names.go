// SPDX-License-Identifier: Apache-2.0

package cluster

import "sync"

// earlyNames has one copy of each name of a node that is told of before the node itself
// is known: pods and nodes are read at the same time, and there may be many of both.
type earlyNames struct {
	mu    sync.Mutex
	names map[string]string
	// later is true once the nodes have been read: few are told of before they are
	// known, and those that are gone need not be remembered.
	later bool
}

// earlyMax is how many names are remembered until the nodes have been read, and laterMax
// is how many are afterwards.
const (
	earlyMax = 1 << 17
	laterMax = 1 << 10
)

func (e *earlyNames) name(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.names[name]; ok {
		return known
	}
	if e.names == nil || len(e.names) >= e.max() {
		e.names = make(map[string]string)
	}
	e.names[name] = name
	return name
}

func (e *earlyNames) max() int {
	if e.later {
		return laterMax
	}
	return earlyMax
}

// forget forgets all names: the nodes are known by now.
func (e *earlyNames) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names, e.later = nil, true
}
