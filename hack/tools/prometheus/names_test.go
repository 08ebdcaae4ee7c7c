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

// What metrics there are, docs/metrics.md says: a test of the controller compares
// that page with its registry. Here the page is compared with what asks for metrics.

// metric is one of the page's rows.
type metric struct {
	kind   string
	labels []string
	says   string
}

var metricRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|(.*)\\|$")

// metrics are all that the page has, by name.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := make(map[string]metric)
	for _, row := range metricRow.FindAllStringSubmatch(read(t, root+"docs/metrics.md"), -1) {
		m := metric{kind: row[2], says: row[4]}
		for label := range strings.SplitSeq(row[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				m.labels = append(m.labels, label)
			}
		}
		all[row[1]] = m
	}
	if len(all) < 20 {
		t.Fatalf("only %d metrics are on the page", len(all))
	}
	return all
}

// given are labels that Prometheus, or who runs it, adds to every series.
var given = []string{"cluster", "job", "instance"}

// closed are labels of which the page names all values.
var closed = []string{"state", "mode", "outcome", "condition"}

// uses are the metrics that an expression asks for. It checks their labels.
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
			t.Errorf("%s asks for a metric that is not on the page: %s", where, expr)
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
				t.Errorf("%s goes by the label %s, which none of its metrics has: %s", where, label, expr)
			}
		}
		return nil
	})
	return names
}

// series is the metric that selectors are about. Of a histogram they ask for parts.
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

// checkMatcher checks that the metric has the label, and may have its value.
func checkMatcher(t *testing.T, where string, m *metric, s *labels.Matcher) {
	t.Helper()
	switch {
	case s.Name == model.MetricNameLabel, slices.Contains(given, s.Name):
		return
	case !slices.Contains(m.labels, s.Name):
		t.Errorf("%s: it has no label %s", where, s.Name)
		return
	case !slices.Contains(closed, s.Name):
		return
	}
	for value := range strings.SplitSeq(s.Value, "|") {
		if !strings.Contains(m.says, "`"+value+"`") {
			t.Errorf("%s: the page knows no %s %q", where, s.Name, value)
		}
	}
}

// dashboard is what matters here of Grafana's JSON.
type dashboard struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
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
}

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, root+"charts/nodegate/files/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// filledIn does for expressions what Grafana does before it sends them.
var filledIn = strings.NewReplacer("$gate", ".*", "$window", "1h")

// No panel and no alert asks for a metric or label that does not exist, and none of
// our metrics is asked for by nobody.
func TestWhatIsAskedForExists(t *testing.T) {
	all, used := metrics(t), make(map[string]bool)
	note := func(names []string) {
		for _, name := range names {
			used[name] = true
		}
	}
	for _, rule := range alerts(t) {
		note(uses(t, all, "alert "+rule.Alert, rule.Expr))
	}
	d, asked := theDashboard(t), 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			asked++
			expr := filledIn.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q uses a variable that there is not: %s", panel.Title, expr)
			}
			note(uses(t, all, fmt.Sprintf("panel %q", panel.Title), expr))
		}
	}
	for _, v := range d.Templating.List {
		if metricName, isQuery := strings.CutPrefix(v.Query, "label_values("); isQuery {
			name, label, _ := strings.Cut(strings.TrimSuffix(metricName, ")"), ", ")
			if !slices.Contains(all[name].labels, label) {
				t.Errorf("the variable %s takes %s from %s, which has no such", v.Name, label, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !used[name] {
			t.Errorf("no panel and no alert asks for %s", name)
		}
	}
	if asked < 30 {
		t.Errorf("only %d expressions were checked", asked)
	}
}

// The dashboard is one that Grafana takes without anything else: its own panels, the
// data source that one chooses, and no two panels in one place.
func TestDashboardIsSound(t *testing.T) {
	d := theDashboard(t)
	ids, cells := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the number of another", p.Title)
		}
		ids[p.ID] = true
		if !slices.Contains([]string{"row", "stat", "timeseries", "bargauge", "table"}, p.Type) {
			t.Errorf("panel %q is of the type %s", p.Title, p.Type)
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("panel %q asks %d things of %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" || target.Datasource.Type != "prometheus" {
				t.Errorf("panel %q asks %+v", p.Title, target.Datasource)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is out of bounds, or where %q is", p.Title, other)
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
