// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// collectors is a registry that keeps the registered collectors and their descriptions.
type collectors struct {
	*prometheus.Registry
	all   []prometheus.Collector
	texts []string
}

func (c *collectors) MustRegister(all ...prometheus.Collector) {
	c.Registry.MustRegister(all...)
	c.all = append(c.all, all...)
	for _, one := range all {
		descriptions := make(chan *prometheus.Desc, 10)
		one.Describe(descriptions)
		close(descriptions)
		for description := range descriptions {
			c.texts = append(c.texts, description.String())
		}
	}
}

// everyMetric registers all metrics.
func everyMetric() (*collectors, *Metrics) {
	c := &collectors{Registry: prometheus.NewRegistry()}
	m := NewMetrics(c)
	NewCertificateValidity(c)
	c.MustRegister(NewWatches())
	return c, m
}

// labelsOf returns the labels of each metric, by name.
func (c *collectors) labelsOf(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, text := range c.texts {
		match := described.FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("cannot read %s", text)
		}
		all[match[1]] = match[2]
	}
	return all
}

// fill creates a series of every metric with labels, with this gate and signal if it has
// those labels.
func (c *collectors) fill(t *testing.T, gateName, signal string) {
	t.Helper()
	for i, one := range c.all {
		var make func(prometheus.Labels) error
		switch vec := one.(type) {
		case *prometheus.GaugeVec:
			make = func(l prometheus.Labels) error { _, err := vec.GetMetricWith(l); return err }
		case *prometheus.CounterVec:
			make = func(l prometheus.Labels) error { _, err := vec.GetMetricWith(l); return err }
		case *prometheus.HistogramVec:
			make = func(l prometheus.Labels) error { _, err := vec.GetMetricWith(l); return err }
		case prometheus.Gauge, *Watches:
			continue
		default:
			t.Fatalf("%T is not supported by this test", one)
		}
		series := prometheus.Labels{}
		for label := range strings.SplitSeq(described.FindStringSubmatch(c.texts[i])[2], ",") {
			if label != "" {
				series[label] = map[string]string{labelGate: gateName, labelSignal: signal}[label]
			}
		}
		if err := make(series); err != nil {
			t.Fatal(err)
		}
	}
}

// having returns the names of the metrics that have a series with this label.
func (c *collectors) having(t *testing.T, label, value string) (names []string) {
	t.Helper()
	families, err := c.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, pair := range series.GetLabel() {
				if pair.GetName() == label && pair.GetValue() == value {
					names = append(names, family.GetName())
				}
			}
		}
	}
	return names
}

// Both times are zero while there is no certificate.
func TestCertificateValidity(t *testing.T) {
	registry := prometheus.NewRegistry()
	set := NewCertificateValidity(registry)
	for _, want := range [][2]int64{{0, 0}, {1_700_000_000, 1_800_000_000}} {
		if want[1] > 0 {
			set(time.Unix(want[0], 0), time.Unix(want[1], 0))
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP nodegate_webhook_certificate_expiry_timestamp_seconds Expiry time of the certificate with which this replica serves the webhook; 0 while it has none.
# TYPE nodegate_webhook_certificate_expiry_timestamp_seconds gauge
nodegate_webhook_certificate_expiry_timestamp_seconds %g
# HELP nodegate_webhook_certificate_not_before_timestamp_seconds Time from which the certificate with which this replica serves the webhook is valid; 0 while it has none.
# TYPE nodegate_webhook_certificate_not_before_timestamp_seconds gauge
nodegate_webhook_certificate_not_before_timestamp_seconds %g
`, float64(want[1]), float64(want[0]))))
		if err != nil {
			t.Error(err)
		}
	}
}

// Names, units and help texts follow Prometheus' recommendations.
func TestMetricsFollowConventions(t *testing.T) {
	c, _ := everyMetric()
	c.fill(t, "gate", "signal")
	problems, err := testutil.GatherAndLint(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if n := len(c.having(t, labelGate, "gate")); n < 10 {
		t.Errorf("only %d metrics of gates were checked", n)
	}
}

// The series of a gate are removed with the gate, and those of a signal with the signal.
func TestSeriesAreRemovedWithTheirGate(t *testing.T) {
	c, m := everyMetric()
	m.KeepGates(map[string][]string{"kept": {"stays", "goes"}, "gone": {"stays"}})
	for _, gateName := range []string{"kept", "gone"} {
		c.fill(t, gateName, "stays")
	}
	before := c.having(t, labelGate, "kept")
	c.fill(t, "kept", "goes")
	m.KeepGates(map[string][]string{"kept": {"stays"}})
	if names := c.having(t, labelGate, "gone"); len(names) > 0 {
		t.Errorf("series of a removed gate: %s", names)
	}
	if names := c.having(t, labelSignal, "goes"); len(names) > 0 {
		t.Errorf("series of a removed signal: %s", names)
	}
	if after := c.having(t, labelGate, "kept"); !slices.Equal(before, after) || len(after) < 10 {
		t.Errorf("the remaining gate has the series %s, had %s", after, before)
	}
	m.Waited(&gate.Gate{Name: "kept", Signals: []gate.NamedSignal{{Name: "goes"}}}, []time.Duration{1})
	m.GateNodes("gone", v1alpha1.NodeCounts{})
	if names := append(c.having(t, labelGate, "gone"), c.having(t, labelSignal, "goes")...); len(names) > 0 {
		t.Errorf("series of a removed gate or signal were created again: %s", names)
	}
}

// valuesOf returns the values of a label that a metric has series with, for a gate.
func (c *collectors) valuesOf(t *testing.T, metric, gateName, label string) (values []string) {
	t.Helper()
	families, err := c.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			labels := make(map[string]string)
			for _, pair := range series.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if family.GetName() == metric && labels[labelGate] == gateName {
				values = append(values, labels[label])
			}
		}
	}
	slices.Sort(values)
	return values
}

// Every counter of a gate starts at zero: for all reasons in the runbook's table, and all
// outcomes on the page about metrics.
func TestCountersOfAGateStartAtZero(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	closes, opens := []string{"ExistingIdle"}, []string{"Adopted"} // not in the table with the other reasons of their column
	for _, row := range reasonRow.FindAllStringSubmatch(string(runbook), -1) {
		closes = append(closes, row[1])
		if row[2] != "" && row[2] != string(v1alpha1.ReasonGateDeleted) { // then the gate has no series
			opens = append(opens, row[2])
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var evictions []string
	row := regexp.MustCompile(`nodegate_evictions_total.*had started: (.*)\.`).FindStringSubmatch(string(page))
	for _, outcome := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[1], -1) {
		evictions = append(evictions, outcome[1])
	}
	c, m := everyMetric()
	m.KeepGates(map[string][]string{"gate": nil})
	for _, want := range []struct {
		metric, label string
		values        []string
	}{
		{"nodegate_closes_total", labelReason, closes}, {"nodegate_opens_total", labelReason, opens}, {"nodegate_evictions_total", labelOutcome, evictions},
	} {
		slices.Sort(want.values)
		values := slices.Compact(want.values)
		if got := c.valuesOf(t, want.metric, "gate", want.label); !slices.Equal(got, values) || len(got) < 5 {
			t.Errorf("%s has series for\n%s, want\n%s", want.metric, got, values)
		}
	}
	m.KeepGates(nil)
	if names := c.having(t, labelGate, "gate"); len(names) > 0 {
		t.Errorf("series of a removed gate: %s", names)
	}
}

var (
	reasonRow = regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\| [^|]+ \\| \\| (?:`(\\w+)`)? ?\\|")
	described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	metricRow = regexp.MustCompile("(?m)^\\| `(nodegate_\\w+)` \\| \\w+ \\|([^|]*)\\|")
)

// The page about metrics has a row for each metric, with its labels.
func TestThePageHasEveryMetric(t *testing.T) {
	c, _ := everyMetric()
	want := c.labelsOf(t)
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, match := range metricRow.FindAllStringSubmatch(string(page), -1) {
		got[match[1]] = strings.NewReplacer("`", "", " ", "").Replace(strings.TrimSpace(match[2]))
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics on the page: %s\nregistered metrics:  %s", sorted(got), sorted(want))
	}
}

func sorted(metrics map[string]string) (all []string) {
	for name, labels := range metrics {
		all = append(all, fmt.Sprintf("%s{%s}", name, labels))
	}
	slices.Sort(all)
	return all
}
