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
	labelGate      = "gate"
	labelState     = "state"
	labelReason    = "reason"
	labelOutcome   = "outcome"
	labelCondition = "condition"
	labelMode      = "mode"
)

// Metrics are what nodegate tells Prometheus. Series of a gate go when the
// gate goes; none is kept for a single node.
type Metrics struct {
	nodes      *prometheus.GaugeVec
	proved     *prometheus.GaugeVec
	conditions *prometheus.GaugeVec
	modes      *prometheus.GaugeVec
	complete   prometheus.Gauge
	strangers  prometheus.Gauge
	timeToOpen *prometheus.HistogramVec
	opens      *prometheus.CounterVec
	closes     *prometheus.CounterVec
	patches    *prometheus.CounterVec
	bypasses   *prometheus.CounterVec
	evictions  *prometheus.CounterVec
	events     *prometheus.CounterVec

	mu    sync.Mutex
	gates map[string]bool
}

// NewMetrics registers nodegate's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodegate_gate_nodes", Help: "Nodes of a gate, by state: selected, open, closed, overdue (closed, and past the deadline), throttled (to be closed, and waiting for budget), overridden (open or closed by hand for a time).",
		}, []string{labelGate, labelState}),
		proved: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodegate_birth_closing_proved", Help: "1 if the API server was seen to close the gate on a new (probe) node, else 0. Not for closeWhen gates.",
		}, []string{labelGate}),
		conditions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodegate_gate_condition", Help: "1 if this condition of the gate's status is True, else 0.",
		}, []string{labelGate, labelCondition}),
		modes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodegate_gate_mode", Help: "1 for the mode that the gate is in: Enforce, DryRun or Paused. There is no series for the others.",
		}, []string{labelGate, labelMode}),
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodegate_gates_complete", Help: "1 if the gates that are known are certain to be all, else 0: then nothing that a missing gate closed is opened.",
		}),
		strangers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodegate_unknown_gates", Help: "Gates that are not known and have records on nodes, which are kept because it is not known either that they were deleted.",
		}),
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
		bypasses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_bypassed_pods_total", Help: "Pods found to have started on a node while a gate was closed that they do not tolerate.",
		}, []string{labelGate}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_evictions_total", Help: "Requests to evict bypassed pods, by outcome.",
		}, []string{labelGate, labelOutcome}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_events_total", Help: "Kubernetes Events, by outcome: written, failed, or dropped because too many waited.",
		}, []string{labelOutcome}),
		gates: make(map[string]bool),
	}
	r.MustRegister(m.nodes, m.proved, m.conditions, m.modes, m.complete, m.strangers, m.timeToOpen, m.opens, m.closes, m.patches,
		m.bypasses, m.evictions, m.events)
	return m
}

// newCertificateExpiry registers the metric of a process that serves the webhook.
// Elsewhere there is nothing that could expire.
func newCertificateExpiry(r prometheus.Registerer) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nodegate_webhook_certificate_expiry_timestamp_seconds", Help: "When the certificate that this replica serves the webhook with expires. 0 while it has none.",
	})
	r.MustRegister(g)
	return g
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

func (m *Metrics) bypassed(gateName string, pods int) {
	m.about(gateName, func() { m.bypasses.WithLabelValues(gateName).Add(float64(pods)) })
}

func (m *Metrics) evicted(gateName string, outcome cluster.Eviction) {
	m.about(gateName, func() { m.evictions.WithLabelValues(gateName, string(outcome)).Inc() })
}

func (m *Metrics) event(outcome string) { m.events.WithLabelValues(outcome).Inc() }

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
		for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.nodes, m.proved, m.conditions, m.modes, m.timeToOpen, m.opens, m.closes, m.bypasses, m.evictions} {
			vec.DeletePartialMatch(match)
		}
	}
	m.gates = now
}
