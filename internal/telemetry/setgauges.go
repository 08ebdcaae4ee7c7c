// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// GateNodes sets the number of a gate's nodes by state.
func (m *Metrics) GateNodes(name string, n v1alpha1.NodeCounts) {
	m.about(name, func() {
		m.Nodes.WithLabelValues(name, "selected").Set(float64(n.Selected))
		m.Nodes.WithLabelValues(name, "open").Set(float64(n.Open))
		m.Nodes.WithLabelValues(name, "closed").Set(float64(n.Closed))
		m.Nodes.WithLabelValues(name, "overdue").Set(float64(n.Overdue))
		m.Nodes.WithLabelValues(name, "throttled").Set(float64(n.Throttled))
		m.Nodes.WithLabelValues(name, "overridden").Set(float64(n.Overridden))
	})
}

// GateNonMembers sets the number of selected nodes that are not members, by reason, and removes
// other reasons. A series that remains is never removed in between: a scrape would miss it.
func (m *Metrics) GateNonMembers(name string, all []v1alpha1.NonMembers) {
	m.about(name, func() {
		before := m.outside[name]
		m.outside[name] = nil
		for i := range all {
			reason := string(all[i].Reason)
			m.nonMembers.WithLabelValues(name, reason).Set(float64(all[i].Count))
			m.outside[name] = append(m.outside[name], reason)
		}
		for _, reason := range before {
			if !slices.Contains(m.outside[name], reason) {
				m.nonMembers.DeleteLabelValues(name, reason)
			}
		}
	})
}

// GateWaiting sets the number of closed nodes by the signal that they wait for, and the
// close time of the node that has been closed the longest.
func (m *Metrics) GateWaiting(name string, s *fleet.Summary) {
	m.about(name, func() {
		m.Waiting.WithLabelValues(name, noSignal).Set(float64(s.WaitsFor[""]))
		for _, signal := range m.gates[name] {
			m.Waiting.WithLabelValues(name, signal).Set(float64(s.WaitsFor[signal]))
		}
		if len(s.Waiting) == 0 {
			m.Oldest.DeleteLabelValues(name)
			return
		}
		m.Oldest.WithLabelValues(name).Set(float64(s.Waiting[0].Since.Unix()))
	})
}

// GateGroups sets the number of a gate's groups by state. Nil removes them, for a gate that
// does not open together.
func (m *Metrics) GateGroups(name string, n *v1alpha1.GroupCounts) {
	m.about(name, func() {
		if n == nil {
			m.Groups.DeletePartialMatch(prometheus.Labels{labelGate: name})
			return
		}
		m.Groups.WithLabelValues(name, "complete").Set(float64(n.Complete))
		m.Groups.WithLabelValues(name, "incomplete").Set(float64(n.Incomplete))
	})
}

// GateBudget sets the usage of a gate's budget by zone, and removes other zones.
func (m *Metrics) GateBudget(name string, zones map[string]fleet.Usage) {
	m.about(name, func() {
		for _, zone := range m.zones[name] {
			if _, ok := zones[zone]; !ok {
				m.Used.DeleteLabelValues(name, zone)
				m.Allowed.DeleteLabelValues(name, zone)
			}
		}
		for zone, u := range zones {
			m.Used.WithLabelValues(name, zone).Set(float64(u.Used))
			m.Allowed.WithLabelValues(name, zone).Set(float64(u.Allowed))
		}
		m.zones[name] = slices.Collect(maps.Keys(zones))
	})
}

// BirthProved sets whether new nodes are known to be closed, and when that was last
// proved. A zero time means never.
func (m *Metrics) BirthProved(name string, proved bool, at time.Time) {
	m.about(name, func() {
		m.Proved.WithLabelValues(name).Set(oneIf(proved))
		if !at.IsZero() {
			m.provedAt.WithLabelValues(name).Set(float64(at.Unix()))
		}
	})
}

// GuardProved sets whether a guard is in force.
func (m *Metrics) GuardProved(guard string, proved bool) {
	m.Guards.WithLabelValues(guard).Set(oneIf(proved))
}

// GuardUnknown removes the series of a guard.
func (m *Metrics) GuardUnknown(guard string) { m.Guards.DeleteLabelValues(guard) }

// NotClosedAtBirth removes the series of a gate that does not close at birth, as far as
// is known: there is nothing to prove.
func (m *Metrics) NotClosedAtBirth(name string) {
	m.Proved.DeleteLabelValues(name)
	m.provedAt.DeleteLabelValues(name)
}

// conditionTypes are the conditions that a gate may have.
var conditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAccepted, v1alpha1.ConditionOverdue,
	v1alpha1.ConditionThrottled, v1alpha1.ConditionContended,
}

// GateConditions sets which conditions of a gate are True, and the reason for which it is not Ready.
func (m *Metrics) GateConditions(name string, conditions []metav1.Condition) {
	m.about(name, func() {
		for _, kind := range conditionTypes {
			m.Conditions.WithLabelValues(name, kind).Set(oneIf(meta.IsStatusConditionTrue(conditions, kind)))
		}
		m.setNotReady(name, meta.FindStatusCondition(conditions, v1alpha1.ConditionReady))
	})
}

// setNotReady replaces the series of the reason for which a gate is not Ready. The reason is empty
// if the gate has no such condition. A series that remains is never removed in between, because
// the alert would then start again if Prometheus scraped at that moment.
func (m *Metrics) setNotReady(name string, ready *metav1.Condition) {
	reason, notReady := "", true
	if ready != nil {
		reason, notReady = ready.Reason, ready.Status != metav1.ConditionTrue
	}
	before, was := m.reasons[name]
	if notReady {
		m.notReady.WithLabelValues(name, reason).Set(1)
		m.reasons[name] = reason
	} else {
		delete(m.reasons, name)
	}
	if was && (!notReady || before != reason) {
		m.notReady.DeleteLabelValues(name, before)
	}
}

// GatesKnown sets whether the list of gates is known to be complete.
func (m *Metrics) GatesKnown(complete bool) {
	m.Complete.Set(oneIf(complete))
}

// oneIf returns the value of a gauge of a condition: 1 if it is true, and 0 if not.
func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// GateMode sets the mode of a gate.
func (m *Metrics) GateMode(name string, mode v1alpha1.Mode) {
	m.about(name, func() {
		for _, other := range []v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused} {
			if other != mode {
				m.Modes.DeleteLabelValues(name, string(other))
			}
		}
		m.Modes.WithLabelValues(name, string(mode)).Set(1)
	})
}

// Waited observes how long each signal of a gate that opened has kept a node waiting.
func (m *Metrics) Waited(g *gate.Gate, waits []time.Duration) {
	m.about(g.Name, func() {
		for i, wait := range waits {
			if slices.Contains(m.gates[g.Name], g.Signals[i].Name) { // otherwise, the gate has been edited since
				m.SignalWait.WithLabelValues(g.Name, g.Signals[i].Name).Observe(wait.Seconds())
			}
		}
	})
}
