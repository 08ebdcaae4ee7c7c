// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/prometheus/client_golang/prometheus"
)

// Watches collects the status of this replica's watches by resource. What is watched
// changes with the gates, so it is determined at each scrape.
type Watches struct {
	Status   func() []reflector.Status
	up       *prometheus.Desc
	silences *prometheus.CounterVec
}

var _ prometheus.Collector = (*Watches)(nil)

// NewWatches returns Watches without feeds. Status may be set before it is registered.
func NewWatches() *Watches {
	return &Watches{
		Status: func() []reflector.Status { return nil },
		up:     prometheus.NewDesc("nodegate_watch_up", "1 if everything that this replica watches of the resource is synced and up to date, else 0.", []string{labelResource}, nil),
		silences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodegate_watch_silences_total", Help: "Total number of times that a watch of the resource received nothing for so long, not even a bookmark, that it was listed again.",
		}, []string{labelResource}),
	}
}

// Silenced counts a watch that received nothing for too long.
func (w *Watches) Silenced(s reflector.Status) { w.silences.WithLabelValues(s.Resource()).Inc() }

// Describe implements prometheus.Collector.
func (w *Watches) Describe(to chan<- *prometheus.Desc) {
	to <- w.up
	w.silences.Describe(to)
}

// Collect implements prometheus.Collector.
func (w *Watches) Collect(to chan<- prometheus.Metric) {
	up := make(map[string]float64)
	for _, s := range w.Status() {
		resource := s.Resource()
		if before, seen := up[resource]; s.Live && (!seen || before == 1) {
			up[resource] = 1
		} else {
			up[resource] = 0
		}
		w.silences.WithLabelValues(resource) // starts at zero: see Metrics.initialize
	}
	for resource, value := range up {
		to <- prometheus.MustNewConstMetric(w.up, prometheus.GaugeValue, value, resource)
	}
	w.silences.Collect(to)
}
