// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// metric returns the sum of a metric's series that have all of these label values, or -1 if
// there are none. For a histogram, it is the number of observations.
func metric(metrics prometheus.Gatherer, name string, values ...string) float64 {
	families, err := metrics.Gather()
	if err != nil {
		return -1
	}
	sum, found := 0.0, false
	for _, family := range families {
		for _, series := range family.GetMetric() {
			has := make(map[string]bool)
			for _, label := range series.GetLabel() {
				has[label.GetValue()] = true
			}
			lacks := func(value string) bool { return !has[value] }
			if family.GetName() == name && !slices.ContainsFunc(values, lacks) {
				sum += series.GetGauge().GetValue() + series.GetCounter().GetValue() + float64(series.GetHistogram().GetSampleCount())
				found = true
			}
		}
	}
	if !found {
		return -1
	}
	return sum
}

// shows waits until a metric has a value.
func (e *env) shows(metrics prometheus.Gatherer, name string, want float64, values ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("%s of %v is %v", name, values, want), func() error {
		if got := metric(metrics, name, values...); got != want {
			return fmt.Errorf("the value is %v", got)
		}
		return nil
	})
}
