// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// Labels of metrics.
const (
	labelGate    = "gate"
	labelState   = "state"
	labelReason  = "reason"
	labelOutcome = "outcome"
)

// Metrics are what nodegate tells Prometheus. Series of a gate go when the
// gate goes; none is kept for a single node.
type Metrics struct {
	nodes      *prometheus.GaugeVec
	proved     *prometheus.GaugeVec
	timeToOpen *prometheus.HistogramVec
	opens      *prometheus.CounterVec
	closes     *prometheus.CounterVec
	patches    *prometheus.CounterVec

	mu    sync.Mutex
	gates map[string]bool
}

// NewMetrics registers nodegate's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodegate_gate_nodes", Help: "Nodes of a gate, by state: selected, open, closed.",
		}, []string{labelGate, labelState}),
		proved: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodegate_birth_closing_proved", Help: "1 if the API server was seen to close the gate on a new (probe) node, else 0. Not for closeWhen gates.",
		}, []string{labelGate}),
		timeToOpen: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nodegate_time_to_open_seconds", Help: "Time from the closing of a gate on a node to its opening.",
			Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600},
		}, []string{labelGate}),
		opens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_opens_total", Help: "Openings of a gate on a node, by reason.",
		}, []string{labelGate, labelReason}),
		closes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_closes_total", Help: "Closings of a gate on a node by the controller, by reason. Closings at birth by the API server are not among them.",
		}, []string{labelGate, labelReason}),
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_patches_total", Help: "Patches of nodes, by outcome.",
		}, []string{labelOutcome}),
		gates: make(map[string]bool),
	}
	r.MustRegister(m.nodes, m.proved, m.timeToOpen, m.opens, m.closes, m.patches)
	return m
}

func (m *Metrics) patched(err error) {
	outcome := "error"
	switch {
	case err == nil:
		outcome = "ok"
	case errors.Is(err, cluster.ErrConflict):
		outcome = "conflict"
	case errors.Is(err, cluster.ErrGone):
		outcome = "gone"
	case errors.Is(err, cluster.ErrDenied):
		outcome = "denied"
	}
	m.patches.WithLabelValues(outcome).Inc()
}

// opened tells of a gate that opened, and for how long it had been closed. It
// had not been if that is negative.
func (m *Metrics) opened(v *gate.Verdict, held time.Duration) {
	m.about(v.Gate, func() {
		m.opens.WithLabelValues(v.Gate, string(v.Reason)).Inc()
		if held >= 0 {
			m.timeToOpen.WithLabelValues(v.Gate).Observe(held.Seconds())
		}
	})
}

func (m *Metrics) closed(v *gate.Verdict) {
	m.about(v.Gate, func() { m.closes.WithLabelValues(v.Gate, string(v.Reason)).Inc() })
}

func (m *Metrics) gateNodes(name string, n v1alpha1.NodeCounts) {
	m.about(name, func() {
		m.nodes.WithLabelValues(name, "selected").Set(float64(n.Selected))
		m.nodes.WithLabelValues(name, "open").Set(float64(n.Open))
		m.nodes.WithLabelValues(name, "closed").Set(float64(n.Closed))
	})
}

func (m *Metrics) birthProved(name string, proved bool) {
	value := 0.0
	if proved {
		value = 1
	}
	m.about(name, func() { m.proved.WithLabelValues(name).Set(value) })
}

// notClosedAtBirth drops what was told of a gate before it was edited: there is
// nothing to prove, and nobody to be alarmed.
func (m *Metrics) notClosedAtBirth(name string) { m.proved.DeleteLabelValues(name) }

// about writes a gate's series, unless the gate is gone: nobody would ever
// remove them again.
func (m *Metrics) about(name string, write func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gates[name] {
		write()
	}
}

// keepGates drops the series of gates that are no longer among these.
func (m *Metrics) keepGates(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[string]bool, len(names))
	for _, name := range names {
		now[name] = true
		delete(m.gates, name)
	}
	for gone := range m.gates {
		match := prometheus.Labels{labelGate: gone}
		for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.nodes, m.proved, m.timeToOpen, m.opens, m.closes} {
			vec.DeletePartialMatch(match)
		}
	}
	m.gates = now
}
