// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// A test of the controller compares docs/metrics.md with its registry. These tests compare
// the page with the queries of alerts and dashboard.

// metric is a row of the page.
type metric struct {
	kind   string
	labels []string
	text   string
}

var metricRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|(.*)\\|$")

// metrics returns the metrics on the page, by name.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := make(map[string]metric)
	for _, row := range metricRow.FindAllStringSubmatch(read(t, root+"docs/metrics.md"), -1) {
		m := metric{kind: row[2], text: row[4]}
		for label := range strings.SplitSeq(row[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				m.labels = append(m.labels, label)
			}
		}
		all[row[1]] = m
	}
	if len(all) < 20 {
		t.Fatalf("the page has only %d metrics", len(all))
	}
	return all
}

// given are labels that the configuration of Prometheus adds to every series.
var given = []string{"cluster", "job", "instance"}

// closed are the labels whose values are all on the page; of reasons, those that queries select.
var closed = []string{"state", "mode", "outcome", "condition", "reason"}

// uses returns the metrics in an expression, and checks their labels.
func uses(t *testing.T, all map[string]metric, where, expr string) (names []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expr)
		return nil
	}
	var has []string
	for _, selectors := range parser.ExtractSelectors(parsed) {
		name, m := series(all, selectors)
		if name == "" {
			t.Errorf("%s has a metric that is not on the page: %s", where, expr)
			continue
		}
		names, has = append(names, name), append(has, m.labels...)
		for _, matcher := range selectors {
			checkMatcher(t, where+" about "+name, &m, matcher)
		}
	}
	has = append(has, given...)
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		var by []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			by = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				by = n.VectorMatching.MatchingLabels
			}
		}
		for _, label := range by {
			if !slices.Contains(has, label) {
				t.Errorf("%s groups by the label %s, which none of its metrics has: %s", where, label, expr)
			}
		}
		return nil
	})
	return names
}

// series returns the metric of selectors, which name the parts of a histogram.
func series(all map[string]metric, selectors []*labels.Matcher) (string, metric) {
	for _, s := range selectors {
		if s.Name != model.MetricNameLabel {
			continue
		}
		if m, ok := all[s.Value]; ok && m.kind != "histogram" {
			return s.Value, m
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			base, isPart := strings.CutSuffix(s.Value, part)
			if m, ok := all[base]; isPart && ok && m.kind == "histogram" {
				m.labels = append(slices.Clone(m.labels), "le")
				return base, m
			}
		}
	}
	return "", metric{}
}

// checkMatcher checks that the metric has the label and, if its values are known, the value.
func checkMatcher(t *testing.T, where string, m *metric, s *labels.Matcher) {
	t.Helper()
	switch {
	case s.Name == model.MetricNameLabel, slices.Contains(given, s.Name):
		return
	case !slices.Contains(m.labels, s.Name):
		t.Errorf("%s: the metric has no label %s", where, s.Name)
		return
	case !slices.Contains(closed, s.Name):
		return
	}
	for value := range strings.SplitSeq(s.Value, "|") {
		if !strings.Contains(m.text, "`"+value+"`") {
			t.Errorf("%s: the page has no %s %q", where, s.Name, value)
		}
	}
}

// dashboard contains the tested fields of Grafana's JSON.
type dashboard struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ Type, UID string }
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		Expr       string
		Datasource struct{ Type, UID string }
	}
}

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, root+"charts/nodegate/files/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// filledIn replaces the variables in expressions, like Grafana.
var filledIn = strings.NewReplacer("$gate", ".*", "$window", "1h")

// All metrics and labels in panels and alerts exist, and each metric is used.
func TestQueriedMetricsExist(t *testing.T) {
	all, used := metrics(t), make(map[string]bool)
	note := func(names []string) {
		for _, name := range names {
			used[name] = true
		}
	}
	for _, rule := range alerts(t) {
		note(uses(t, all, "alert "+rule.Alert, rule.Expr))
	}
	d, queries := theDashboard(t), 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries++
			expr := filledIn.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q uses an unknown variable: %s", panel.Title, expr)
			}
			note(uses(t, all, fmt.Sprintf("panel %q", panel.Title), expr))
		}
	}
	for _, v := range d.Templating.List {
		if metricName, isQuery := strings.CutPrefix(v.Query, "label_values("); isQuery {
			name, label, _ := strings.Cut(strings.TrimSuffix(metricName, ")"), ", ")
			if !slices.Contains(all[name].labels, label) {
				t.Errorf("the variable %s uses the label %s, which %s does not have", v.Name, label, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !used[name] {
			t.Errorf("no panel and no alert uses %s", name)
		}
	}
	if queries < 30 {
		t.Errorf("only %d expressions were checked", queries)
	}
}

// Grafana can display the dashboard without plugins: it has only built-in panels, which use
// the selected data source and do not overlap.
func TestDashboardIsValid(t *testing.T) {
	d := theDashboard(t)
	ids, cells := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("the ID of panel %q is not unique", p.Title)
		}
		ids[p.ID] = true
		if !slices.Contains([]string{"row", "stat", "timeseries", "bargauge", "table"}, p.Type) {
			t.Errorf("panel %q has the type %s", p.Title, p.Type)
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("panel %q has %d queries, and the data source %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" || target.Datasource.Type != "prometheus" {
				t.Errorf("panel %q has the data source %+v", p.Title, target.Datasource)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is out of bounds, or overlaps with %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name+" "+v.Type)
	}
	if d.UID == "" || d.SchemaVersion < 39 || !slices.Equal(names, []string{"datasource datasource", "gate query", "window custom"}) {
		t.Errorf("uid %q, schema %d, variables %q", d.UID, d.SchemaVersion, names)
	}
}
