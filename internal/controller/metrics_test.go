// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// describes is a registerer that keeps what is said of the metrics.
type describes struct {
	prometheus.Registerer
	texts []string
}

func (d *describes) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		descriptions := make(chan *prometheus.Desc, 10)
		c.Describe(descriptions)
		close(descriptions)
		for one := range descriptions {
			d.texts = append(d.texts, one.String())
		}
	}
}

var (
	described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	metricRow = regexp.MustCompile("(?m)^\\| `(nodegate_\\w+)` \\| \\w+ \\|([^|]*)\\|")
)

// The page of metrics has a row for each that there is, with its labels.
func TestThePageHasEveryMetric(t *testing.T) {
	var d describes
	NewMetrics(&d)
	newCertificateExpiry(&d)
	want := make(map[string]string)
	for _, text := range d.texts {
		match := described.FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("cannot read %s", text)
		}
		want[match[1]] = match[2]
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, match := range metricRow.FindAllStringSubmatch(string(page), -1) {
		got[match[1]] = strings.NewReplacer("`", "", " ", "").Replace(strings.TrimSpace(match[2]))
	}
	if !maps.Equal(got, want) {
		t.Errorf("the page has %s\nthere are    %s", sorted(got), sorted(want))
	}
}

func sorted(metrics map[string]string) (all []string) {
	for name, labels := range metrics {
		all = append(all, fmt.Sprintf("%s{%s}", name, labels))
	}
	slices.Sort(all)
	return all
}
