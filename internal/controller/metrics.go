// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
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
	labelSignal    = "signal"
	labelZone      = "zone"
)

// noSignal is the label of nodes that are closed and wait for none of the gate's
// signals. No signal can be called so.
const noSignal = "-"

// waits are the buckets of times that nodes are kept waiting, in seconds.
var waits = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600}

// Metrics are what nodegate tells Prometheus. Series of a gate go when the
// gate goes, those of its signals with them; none is kept for a single node.
type Metrics struct {
	nodes      *prometheus.GaugeVec
	waiting    *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	used       *prometheus.GaugeVec
	allowed    *prometheus.GaugeVec
	proved     *prometheus.GaugeVec
	provedAt   *prometheus.GaugeVec
	conditions *prometheus.GaugeVec
	modes      *prometheus.GaugeVec
	complete   prometheus.Gauge
	strangers  prometheus.Gauge
	timeToOpen *prometheus.HistogramVec
	signalWait *prometheus.HistogramVec
	opens      *prometheus.CounterVec
	closes     *prometheus.CounterVec
	patches    *prometheus.CounterVec
	bypasses   *prometheus.CounterVec
	evictions  *prometheus.CounterVec
	events     *prometheus.CounterVec

	registerer prometheus.Registerer
	// byGate are all that have the label gate.
	byGate []*prometheus.MetricVec

	mu sync.Mutex
	// gates are those of which there may be series, by name, and their signals.
	gates map[string][]string
	// zones are those of which budgets are told, by gate.
	zones map[string][]string
}

// NewMetrics registers nodegate's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{registerer: r, gates: make(map[string][]string), zones: make(map[string][]string)}
	m.nodes = m.gauge("nodegate_gate_nodes", "Nodes of a gate, by state: selected, open, closed, overdue (closed, and past the deadline), throttled (to be closed, and waiting for budget), overridden (open or closed by hand for a time).", labelGate, labelState)
	m.waiting = m.gauge("nodegate_gate_waiting_nodes", "Closed nodes of a gate, by the first of its signals that each waits for; - is of those that wait for none.", labelGate, labelSignal)
	m.oldest = m.gauge("nodegate_gate_oldest_closed_timestamp_seconds", "Since when the node has been closed that has been for longest. There is no series while none is closed.", labelGate)
	m.used = m.gauge("nodegate_gate_budget_used_nodes", "Nodes of a gate in a zone that are closed, or being closed, under its budget.", labelGate, labelZone)
	m.allowed = m.gauge("nodegate_gate_budget_allowed_nodes", "How many nodes of a gate in a zone its budget lets be closed at a time.", labelGate, labelZone)
	m.proved = m.gauge("nodegate_birth_closing_proved", "1 if the API server was seen to close the gate on a new (probe) node, else 0. Not for closeWhen gates.", labelGate)
	m.provedAt = m.gauge("nodegate_birth_closing_proved_timestamp_seconds", "When that was last seen. There is no series before.", labelGate)
	m.conditions = m.gauge("nodegate_gate_condition", "1 if this condition of the gate's status is True, else 0.", labelGate, labelCondition)
	m.modes = m.gauge("nodegate_gate_mode", "1 for the mode that the gate is in: Enforce, DryRun or Paused. There is no series for the others.", labelGate, labelMode)
	m.complete = m.gauge("nodegate_gates_complete", "1 if the gates that are known are certain to be all, else 0: then nothing that a missing gate closed is opened.").WithLabelValues()
	m.strangers = m.gauge("nodegate_unknown_gates", "Gates that are not known and have records on nodes, which are kept because it is not known either that they were deleted.").WithLabelValues()
	m.timeToOpen = m.histogram("nodegate_time_to_open_seconds", "Time from the closing of a gate on a node to its opening.", labelGate)
	m.signalWait = m.histogram("nodegate_signal_wait_seconds", "Time from the closing of a gate on a node to when a signal began to hold, observed for each signal when they all hold and the gate opens.", labelGate, labelSignal)
	m.opens = m.counter("nodegate_opens_total", "Openings of a gate on a node, by reason.", labelGate, labelReason)
	m.closes = m.counter("nodegate_closes_total", "Closings of a gate on a node by the controller, by reason. Closings at birth by the API server are not among them.", labelGate, labelReason)
	m.patches = m.counter("nodegate_patches_total", "Patches of nodes, by outcome.", labelOutcome)
	m.bypasses = m.counter("nodegate_bypassed_pods_total", "Pods found to have started on a node while a gate was closed that they do not tolerate.", labelGate)
	m.evictions = m.counter("nodegate_evictions_total", "Requests to evict bypassed pods, by outcome.", labelGate, labelOutcome)
	m.events = m.counter("nodegate_events_total", "Kubernetes Events, by outcome: written, failed, or dropped because too many waited.", labelOutcome)
	m.begin()
	m.buildInfo()
	return m
}

// begin begins to count at zero what is alarming: of a counter that begins with
// one, Prometheus does not see the first increase.
func (m *Metrics) begin() {
	for _, outcome := range []string{patchOK, patchConflict, patchGone, patchDenied, patchError} {
		m.patches.WithLabelValues(outcome)
	}
	for _, outcome := range []string{eventWritten, eventFailed, eventDropped} {
		m.events.WithLabelValues(outcome)
	}
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.register(vec, vec.MetricVec, labels)
	return vec
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.register(vec, vec.MetricVec, labels)
	return vec
}

// histogram is a classic one and, for those who scrape such, a native one.
func (m *Metrics) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: waits,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
	m.register(vec, vec.MetricVec, labels)
	return vec
}

func (m *Metrics) register(c prometheus.Collector, vec *prometheus.MetricVec, labels []string) {
	m.registerer.MustRegister(c)
	if slices.Contains(labels, labelGate) {
		m.byGate = append(m.byGate, vec)
	}
}

// buildInfo tells which build runs.
func (m *Metrics) buildInfo() {
	version, revision := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	m.gauge("nodegate_build_info", "1, labelled with what was built and with which Go.", "version", "revision", "go_version").
		WithLabelValues(version, revision, runtime.Version()).Set(1)
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

// Outcomes of patches and of Events.
const (
	patchOK       = "ok"
	patchConflict = "conflict"
	patchGone     = "gone"
	patchDenied   = "denied"
	patchError    = "error"

	eventWritten = "written"
	eventFailed  = "failed"
	eventDropped = "dropped"
)

func (m *Metrics) patched(err error) {
	outcome := patchError
	switch {
	case err == nil:
		outcome = patchOK
	case errors.Is(err, cluster.ErrConflict):
		outcome = patchConflict
	case errors.Is(err, cluster.ErrGone):
		outcome = patchGone
	case errors.Is(err, cluster.ErrDenied):
		outcome = patchDenied
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

// about writes a gate's series, unless the gate is gone: nobody would ever
// remove them again.
func (m *Metrics) about(name string, write func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.gates[name]; known {
		write()
	}
}

// keepGates drops the series of gates, and of their signals, that are no longer
// among these.
func (m *Metrics) keepGates(signals map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, before := range m.gates {
		now, is := signals[name]
		if !is {
			m.drop(prometheus.Labels{labelGate: name})
			delete(m.zones, name)
			continue
		}
		for _, signal := range before {
			if !slices.Contains(now, signal) {
				m.drop(prometheus.Labels{labelGate: name, labelSignal: signal})
			}
		}
	}
	for name := range signals { // see begin
		m.bypasses.WithLabelValues(name)
		m.closes.WithLabelValues(name, string(v1alpha1.ReasonBirth))
	}
	m.gates = signals
}

// drop drops all series that have these labels.
func (m *Metrics) drop(labels prometheus.Labels) {
	for _, vec := range m.byGate {
		vec.DeletePartialMatch(labels)
	}
}
