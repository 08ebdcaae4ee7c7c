// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// memory keeps what a decision hands on to the next one about the same node
// and what is not worth a write. Losing it costs no more than a wait.
type memory struct {
	mu    sync.Mutex
	nodes map[string]remembered
}

type remembered struct {
	uid  types.UID
	lost map[string]time.Time
}

func newMemory() *memory { return &memory{nodes: make(map[string]remembered)} }

// lostSince returns what is to be handed to the next decision.
func (m *memory) lostSince(node string, uid types.UID) map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.nodes[node]; r.uid == uid {
		return r.lost
	}
	return nil
}

// keep takes over what a decision hands on.
func (m *memory) keep(node string, uid types.UID, d *gate.Decision) {
	var lost map[string]time.Time
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; !v.LostSince.IsZero() {
			if lost == nil {
				lost = make(map[string]time.Time)
			}
			lost[v.Gate] = v.LostSince
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if lost == nil {
		delete(m.nodes, node)
		return
	}
	m.nodes[node] = remembered{uid: uid, lost: lost}
}

func (m *memory) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}
