// SPDX-License-Identifier: Apache-2.0

package nodestore

import "sync"

// earlyNames holds one copy of each name of a node that pods refer to before the node
// itself is known. Pods and nodes are read concurrently, and there may be many of both.
type earlyNames struct {
	mu    sync.Mutex
	names map[string]string
	// nodesRead is true when the nodes have been read. Afterwards few pods refer to
	// unknown nodes, and the names of deleted ones need not be kept.
	nodesRead bool
}

// earlyMax is the maximum number of names until the nodes have been read, and laterMax
// afterwards.
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
	if e.nodesRead {
		return laterMax
	}
	return earlyMax
}

// forget drops all names, because the nodes are known now.
func (e *earlyNames) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names, e.nodesRead = nil, true
}
