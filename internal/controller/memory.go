// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// memory keeps what a decision hands on to the next decision about the same node and what
// is not worth a write. Losing it only causes a delay.
type memory struct {
	mu    sync.Mutex
	lost  map[string]remembered
	fails map[string]failures
	// ignored has the overrides that are not followed, by node and gate, with the cause.
	ignored map[string]map[string]string
}

// remembered is the state of one Node.
type remembered struct {
	uid                 types.UID
	lost, rollout, left map[string]time.Time // by gate
	steady              map[string]gate.Steady
	shadow              map[string]string
}

// failures counts consecutive failures to write a node.
type failures struct {
	denied bool
	count  int
}

func newMemory() *memory {
	return &memory{lost: make(map[string]remembered), fails: make(map[string]failures), ignored: make(map[string]map[string]string)}
}

// recall sets the facts that the previous decision handed on.
func (m *memory) recall(f *gate.Facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.lost[f.Node.Name]; r.uid == f.Node.UID {
		f.LostSince, f.RolloutSince, f.LeftSince, f.Steady, f.Shadow = r.lost, r.rollout, r.left, r.steady, r.shadow
	}
}

// keep stores what a decision hands on. With part, the decision is a part of another one:
// for gates whose signals it did not read, the previous values are kept. The same applies
// to gates that are not covered; nil covers all.
func (m *memory) keep(n *gate.Node, d *gate.Decision, part bool, covers func(gate string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := remembered{uid: n.UID}
	before := m.lost[n.Name]
	if covers != nil && before.uid == n.UID {
		r.retainOthers(&before, covers)
	}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if part && len(v.Readings) == 0 && before.uid == n.UID {
			r.retain(&before, v.Gate)
			continue
		}
		note(&r.lost, v.Gate, v.LostSince)
		note(&r.rollout, v.Gate, v.RolloutSince)
		note(&r.left, v.Gate, v.LeftSince)
		if v.Shadow != "" {
			put(&r.shadow, v.Gate, v.Shadow)
		}
		if v.Steady != nil {
			put(&r.steady, v.Gate, *v.Steady)
		}
	}
	if r.lost == nil && r.rollout == nil && r.left == nil && r.steady == nil && r.shadow == nil {
		delete(m.lost, n.Name)
		return
	}
	m.lost[n.Name] = r
}

// retainOthers keeps the values of gates that are not covered.
func (r *remembered) retainOthers(before *remembered, covers func(gate string) bool) {
	putOthers(&r.lost, before.lost, covers)
	putOthers(&r.rollout, before.rollout, covers)
	putOthers(&r.left, before.left, covers)
	putOthers(&r.steady, before.steady, covers)
	putOthers(&r.shadow, before.shadow, covers)
}

func putOthers[V any](m *map[string]V, from map[string]V, covers func(gate string) bool) {
	for name, value := range from {
		if !covers(name) {
			put(m, name, value)
		}
	}
}

// retain keeps the values of a gate.
func (r *remembered) retain(before *remembered, gateName string) {
	note(&r.lost, gateName, before.lost[gateName])
	note(&r.rollout, gateName, before.rollout[gateName])
	note(&r.left, gateName, before.left[gateName])
	if shadow, ok := before.shadow[gateName]; ok {
		put(&r.shadow, gateName, shadow)
	}
	if steady, ok := before.steady[gateName]; ok {
		put(&r.steady, gateName, steady)
	}
}

func note(times *map[string]time.Time, gateName string, t time.Time) {
	if !t.IsZero() {
		put(times, gateName, t)
	}
}

// put sets a key of a map, which is created if it is nil.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = v
}

// newlyIgnored stores the overrides of a node that are not followed, with the cause. It
// returns those that were not stored with the same cause before.
func (m *memory) newlyIgnored(node string, ignored map[string]string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var added map[string]string
	for name, why := range ignored {
		if before, known := m.ignored[node][name]; !known || before != why {
			put(&added, name, why)
		}
	}
	if delete(m.ignored, node); len(ignored) > 0 {
		m.ignored[node] = ignored
	}
	return added
}

// failed counts a failed write of a node, and returns the number of consecutive previous
// failures of its kind.
func (m *memory) failed(node string, denied bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fails[node]
	if f.denied != denied {
		f = failures{denied: denied}
	}
	f.count++
	m.fails[node] = f
	return f.count - 1
}

// succeeded resets the count of failures, and returns whether there were any.
func (m *memory) succeeded(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, had := m.fails[node]
	delete(m.fails, node)
	return had
}

func (m *memory) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lost, node)
	delete(m.fails, node)
	delete(m.ignored, node)
}
