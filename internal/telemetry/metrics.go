// SPDX-License-Identifier: Apache-2.0

// Package telemetry contains the metrics and Events of the controller.
package telemetry

import (
	"cmp"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// Labels of metrics.
const (
	labelGate      = "gate"
	labelState     = "state"
	labelReason    = "reason"
	labelOutcome   = "outcome"
	labelCertainty = "certainty"
	labelOwner     = "owner"
	labelCondition = "condition"
	labelMode      = "mode"
	labelSignal    = "signal"
	labelZone      = "zone"
	labelGuard     = "guard"
	labelResource  = "resource"
)

// noSignal is the label value for closed nodes that wait for no signal. It is not a valid
// name of a signal.
const noSignal = "-"

// waits are the histogram buckets of waiting times, in seconds.
var waits = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600}

// Metrics are the metrics of nodegate. The series of a gate are removed with the gate,
// and those of its signals with the signals. No series is specific to a node.
type Metrics struct {
	Nodes         *prometheus.GaugeVec
	Waiting       *prometheus.GaugeVec
	nonMembers    *prometheus.GaugeVec
	Oldest        *prometheus.GaugeVec
	Groups        *prometheus.GaugeVec
	Used          *prometheus.GaugeVec
	Allowed       *prometheus.GaugeVec
	Proved        *prometheus.GaugeVec
	provedAt      *prometheus.GaugeVec
	Guards        *prometheus.GaugeVec
	Conditions    *prometheus.GaugeVec
	notReady      *prometheus.GaugeVec
	Modes         *prometheus.GaugeVec
	Complete      prometheus.Gauge
	UnlistedGates prometheus.Gauge
	LeaseLosses   prometheus.Counter
	TimeToOpen    *prometheus.HistogramVec
	SignalWait    *prometheus.HistogramVec
	Opens         *prometheus.CounterVec
	Closes        *prometheus.CounterVec
	Patches       *prometheus.CounterVec
	Bypasses      *prometheus.CounterVec
	Rejections    *prometheus.CounterVec
	Evictions     *prometheus.CounterVec
	Events        *prometheus.CounterVec

	registerer prometheus.Registerer
	// byGate has all metrics with the label gate.
	byGate []*prometheus.MetricVec

	mu sync.Mutex
	// gates has the gates that may have series, with their signals.
	gates map[string][]string
	// zones has the zones that have series of budgets, by gate.
	zones map[string][]string
	// reasons has the reasons of the gates that are not Ready, by gate.
	reasons map[string]string
	// outside has the reasons of nonMembers that have series, by gate.
	outside map[string][]string
}

// NewMetrics registers nodegate's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		registerer: r, gates: make(map[string][]string), zones: make(map[string][]string), reasons: make(map[string]string),
		outside: make(map[string][]string),
	}
	m.Nodes = m.gauge("nodegate_gate_nodes", "Number of nodes of a gate, by state: selected, open, closed, overdue (closed, and past the deadline), throttled (to be closed, and waiting for budget), overridden (open or closed by a manual override).", labelGate, labelState)
	m.Waiting = m.gauge("nodegate_gate_waiting_nodes", "Number of closed nodes of a gate, by the first of its signals that each node waits for; - counts nodes that wait for no signal.", labelGate, labelSignal)
	m.nonMembers = m.gauge("nodegate_gate_non_member_nodes", "Number of nodes that a gate selects but that are not its members, by reason. Reasons without nodes have no series.", labelGate, labelReason)
	m.Oldest = m.gauge("nodegate_gate_oldest_closed_timestamp_seconds", "Close time of the node that has been closed the longest. No series while no node is closed.", labelGate)
	m.Groups = m.gauge("nodegate_gate_groups", "Number of groups of a gate with openTogether, by state: complete (as many nodes are fit as atLeast requires) or incomplete.", labelGate, labelState)
	m.Used = m.gauge("nodegate_gate_budget_used_nodes", "Number of nodes that are closed or being closed under a gate's budget, by zone.", labelGate, labelZone)
	m.Allowed = m.gauge("nodegate_gate_budget_allowed_nodes", "Number of nodes that a gate's budget allows to be closed at a time, by zone.", labelGate, labelZone)
	m.Proved = m.gauge("nodegate_birth_closing_proved", "1 if the API server closed the gate on a probe node at its creation, else 0. Only for accepted openWhen gates in mode Enforce.", labelGate)
	m.provedAt = m.gauge("nodegate_birth_closing_proved_timestamp_seconds", "Time of the last successful probe of closing at creation. No series before the first success.", labelGate)
	m.Guards = m.gauge("nodegate_guard_proved", "1 if the API server rejected the last probe that this guard (an admission policy) must reject, 0 if it repeatedly did not. Only the leader has series.", labelGuard)
	m.Conditions = m.gauge("nodegate_gate_condition", "1 if this condition of the gate's status is True, else 0.", labelGate, labelCondition)
	m.notReady = m.gauge("nodegate_gate_not_ready", "1 for the reason for which the gate is not Ready. Other reasons, and gates that are Ready, have no series.", labelGate, labelReason)
	m.Modes = m.gauge("nodegate_gate_mode", "1 for the gate's current mode: Enforce, DryRun or Paused. The other modes have no series.", labelGate, labelMode)
	m.Complete = m.gauge("nodegate_gates_complete", "1 if the list of gates is known to be complete, else 0. While 0, no gate is opened because its NodeGate is missing.").WithLabelValues()
	m.UnlistedGates = m.gauge("nodegate_unknown_gates", "Number of unlisted gates that have records on nodes. The records are kept, because the gates are not known to have been deleted, or because their taints are not in --allowed-taint-keys.").WithLabelValues()
	m.LeaseLosses = m.counter("nodegate_lease_losses_total", "Total number of times that this replica lost the Lease while it was the leader. Releasing the Lease at the end of the process is not included.").WithLabelValues()
	m.TimeToOpen = m.histogram("nodegate_time_to_open_seconds", "Time from the closing of a gate on a node to its opening.", labelGate)
	m.SignalWait = m.histogram("nodegate_signal_wait_seconds", "Time from the closing of a gate on a node until a signal started to hold, observed for each signal when the gate opens because all of them hold.", labelGate, labelSignal)
	m.Opens = m.counter("nodegate_opens_total", "Total number of openings of a gate on a node, by reason.", labelGate, labelReason)
	m.Closes = m.counter("nodegate_closes_total", "Total number of closings of a gate on a node by the controller, by reason. Closings at creation by the API server are not included.", labelGate, labelReason)
	m.Patches = m.counter("nodegate_patches_total", "Total number of node patches, by outcome.", labelOutcome)
	m.Bypasses = m.counter("nodegate_bypassed_pods_total", "Total number of pods that had started on a node while a gate was closed whose taint they do not tolerate. certainty=possible: at about the time at which it closed or opened.", labelGate, labelCertainty)
	m.Rejections = m.counter("nodegate_rejected_pods_total", "Total number of pods that a kubelet rejected while a gate was closed whose taint they do not tolerate. certainty=possible: at about the time at which it closed or opened. owner=none: no controller replaces the pod.", labelGate, labelCertainty, labelOwner)
	m.Evictions = m.counter("nodegate_evictions_total", "Total number of requests to evict pods that bypassed a gate, by outcome.", labelGate, labelOutcome)
	m.Events = m.counter("nodegate_events_total", "Total number of Kubernetes Events, by outcome: written, failed, or dropped because of the rate limit.", labelOutcome)
	m.initialize()
	m.buildInfo()
	return m
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

// histogram registers a classic histogram that is also a native one.
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

// buildInfo sets the metric of the running build.
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
	m.gauge("nodegate_build_info", "1, with the version, the revision and the Go version of the running build as labels.", "version", "revision", "go_version").
		WithLabelValues(version, revision, runtime.Version()).Set(1)
}

// NewCertificateValidity registers the metrics of a process that serves the webhook, and returns
// the function that sets them. Other processes have no certificate.
func NewCertificateValidity(r prometheus.Registerer) func(from, until time.Time) {
	start := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nodegate_webhook_certificate_not_before_timestamp_seconds", Help: "Time from which the certificate with which this replica serves the webhook is valid; 0 while it has none.",
	})
	expiry := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nodegate_webhook_certificate_expiry_timestamp_seconds", Help: "Expiry time of the certificate with which this replica serves the webhook; 0 while it has none.",
	})
	r.MustRegister(start, expiry)
	return func(from, until time.Time) {
		start.Set(float64(from.Unix()))
		expiry.Set(float64(until.Unix()))
	}
}

// Outcomes of patches and of Events.
const (
	patchOK       = "ok"
	patchConflict = "conflict"
	patchGone     = "gone"
	patchDenied   = "denied"
	patchError    = "error"

	eventWritten = "written"
	EventFailed  = "failed"
	EventDropped = "dropped"
)

// patchOutcome returns the outcome of a patch.
func patchOutcome(err error) string {
	switch {
	case err == nil:
		return patchOK
	case errors.Is(err, write.ErrConflict):
		return patchConflict
	case errors.Is(err, write.ErrGone):
		return patchGone
	case errors.Is(err, write.ErrDenied):
		return patchDenied
	}
	return patchError
}

// Patched counts a patch by its outcome, given its error.
func (m *Metrics) Patched(err error) { m.Patches.WithLabelValues(patchOutcome(err)).Inc() }

// Opened counts an opening, and observes how long the gate had been closed. A negative
// duration means that it had not been closed.
func (m *Metrics) Opened(v *gate.Verdict, held time.Duration) {
	m.about(v.Gate, func() {
		m.Opens.WithLabelValues(v.Gate, string(v.Reason)).Inc()
		if held >= 0 {
			m.TimeToOpen.WithLabelValues(v.Gate).Observe(held.Seconds())
		}
	})
}

// Closed counts a closing.
func (m *Metrics) Closed(v *gate.Verdict) {
	m.about(v.Gate, func() { m.Closes.WithLabelValues(v.Gate, string(v.Reason)).Inc() })
}

// Values of the label certainty.
const (
	Certain  = "certain"
	Possible = "possible"
)

// Bypassed counts pods that certainly or possibly bypassed a gate.
func (m *Metrics) Bypassed(gateName string, certain, possible int) {
	m.about(gateName, func() {
		m.Bypasses.WithLabelValues(gateName, Certain).Add(float64(certain))
		m.Bypasses.WithLabelValues(gateName, Possible).Add(float64(possible))
	})
}

// Values of the label owner.
const (
	OwnedByController = "controller"
	OwnedByNone       = "none"
)

// Rejected counts pods that a kubelet rejected while a gate was closed: those that have a
// controller, and those that have none. certainty is a value of that label.
func (m *Metrics) Rejected(gateName, certainty string, owned, ownerless int) {
	m.about(gateName, func() {
		m.Rejections.WithLabelValues(gateName, certainty, OwnedByController).Add(float64(owned))
		m.Rejections.WithLabelValues(gateName, certainty, OwnedByNone).Add(float64(ownerless))
	})
}

// Evicted counts a request to evict a pod that bypassed a gate.
func (m *Metrics) Evicted(gateName string, outcome boundpods.Eviction) {
	m.about(gateName, func() { m.Evictions.WithLabelValues(gateName, string(outcome)).Inc() })
}

func (m *Metrics) event(outcome string) { m.Events.WithLabelValues(outcome).Inc() }

// about writes the series of a gate, unless the gate has been deleted: its series would
// never be removed.
func (m *Metrics) about(name string, write func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.gates[name]; known {
		write()
	}
}

// KeepGates initializes the counters of the gates in signals, and removes the series of
// gates, and of their signals, that are not in signals.
func (m *Metrics) KeepGates(signals map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, before := range m.gates {
		now, listed := signals[name]
		if !listed {
			m.drop(prometheus.Labels{labelGate: name})
			delete(m.zones, name)
			delete(m.reasons, name)
			delete(m.outside, name)
			continue
		}
		for _, signal := range before {
			if !slices.Contains(now, signal) {
				m.drop(prometheus.Labels{labelGate: name, labelSignal: signal})
			}
		}
	}
	for name := range signals {
		m.initializeGate(name)
	}
	m.gates = signals
}

// StepDown removes the series that only a leader has.
func (m *Metrics) StepDown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, vec := range []*prometheus.GaugeVec{
		m.Nodes, m.Waiting, m.nonMembers, m.Oldest, m.Groups, m.Used, m.Allowed, m.Proved, m.provedAt, m.Guards, m.Conditions, m.notReady, m.Modes,
	} {
		vec.Reset()
	}
	m.UnlistedGates.Set(0)
	m.zones, m.reasons, m.outside = make(map[string][]string), make(map[string]string), make(map[string][]string)
}

// drop removes all series with these labels.
func (m *Metrics) drop(labels prometheus.Labels) {
	for _, vec := range m.byGate {
		vec.DeletePartialMatch(labels)
	}
}
