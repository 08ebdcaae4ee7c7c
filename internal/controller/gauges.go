// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// What is told of a gate by gauges, at each report.

func (m *Metrics) gateNodes(name string, n v1alpha1.NodeCounts) {
	m.about(name, func() {
		m.nodes.WithLabelValues(name, "selected").Set(float64(n.Selected))
		m.nodes.WithLabelValues(name, "open").Set(float64(n.Open))
		m.nodes.WithLabelValues(name, "closed").Set(float64(n.Closed))
		m.nodes.WithLabelValues(name, "overdue").Set(float64(n.Overdue))
		m.nodes.WithLabelValues(name, "throttled").Set(float64(n.Throttled))
		m.nodes.WithLabelValues(name, "overridden").Set(float64(n.Overridden))
	})
}

// gateWaiting tells for which signals of a gate closed nodes wait, and since when
// the first of them has.
func (m *Metrics) gateWaiting(name string, s *summary) {
	m.about(name, func() {
		m.waiting.WithLabelValues(name, noSignal).Set(float64(s.waitsFor[""]))
		for _, signal := range m.gates[name] {
			m.waiting.WithLabelValues(name, signal).Set(float64(s.waitsFor[signal]))
		}
		if len(s.waiting) == 0 {
			m.oldest.DeleteLabelValues(name)
			return
		}
		m.oldest.WithLabelValues(name).Set(float64(s.waiting[0].Since.Unix()))
	})
}

// gateBudget tells of a gate's budget in each zone, and of no other zone any more.
func (m *Metrics) gateBudget(name string, zones map[string]usage) {
	m.about(name, func() {
		for _, zone := range m.zones[name] {
			if _, is := zones[zone]; !is {
				m.used.DeleteLabelValues(name, zone)
				m.allowed.DeleteLabelValues(name, zone)
			}
		}
		for zone, u := range zones {
			m.used.WithLabelValues(name, zone).Set(float64(u.used))
			m.allowed.WithLabelValues(name, zone).Set(float64(u.allowed))
		}
		m.zones[name] = slices.Collect(maps.Keys(zones))
	})
}

// birthProved tells whether new nodes are known to be closed, and when that was
// last seen; zero is never.
func (m *Metrics) birthProved(name string, proved bool, at time.Time) {
	value := 0.0
	if proved {
		value = 1
	}
	m.about(name, func() {
		m.proved.WithLabelValues(name).Set(value)
		if !at.IsZero() {
			m.provedAt.WithLabelValues(name).Set(float64(at.Unix()))
		}
	})
}

// notClosedAtBirth drops what was told of a gate before it was edited: there is
// nothing to prove, and nobody to be alarmed.
func (m *Metrics) notClosedAtBirth(name string) {
	m.proved.DeleteLabelValues(name)
	m.provedAt.DeleteLabelValues(name)
}

// usage is how many nodes of a gate are closed in a zone under its budget, or are
// being closed, and how many may be.
type usage struct{ used, allowed int }

// usage returns this by zone; nothing while it is not known how many are closed.
func (t *tally) usage(gateName string) map[string]usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	zones := make(map[string]usage)
	if !t.knows(gateName) {
		return zones
	}
	for zone, z := range cmp.Or(t.gates[gateName], &gateTally{}).zones {
		zones[zone] = usage{used: z.closed + z.inFlight, allowed: gate.MaxReclosed(t.terms[gateName].budget, z.members)}
	}
	return zones
}
