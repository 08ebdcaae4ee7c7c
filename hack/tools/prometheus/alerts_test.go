// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	alertsFile = root + "charts/nodegate/files/alerts.yaml"
	runbooks   = root + "docs/runbooks/"
	pages      = "https://github.com/nodegate/nodegate/blob/main/docs/runbooks/"
	root       = "../../../"
)

// alerts returns the rules of the chart, parsed by Prometheus.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) < 10 {
		t.Fatalf("groups: %+v", groups)
	}
	return groups.Groups[0].Rules
}

// alertNamed returns the rule of an alert.
func alertNamed(t *testing.T, name string) *rulefmt.Rule {
	t.Helper()
	all := alerts(t)
	i := slices.IndexFunc(all, func(r rulefmt.Rule) bool { return r.Alert == name })
	if i < 0 {
		t.Fatalf("there is no alert %s", name)
	}
	return &all[i]
}

// firing returns the texts of the alerts that fire after a duration.
func firing(t *testing.T, rule *rulefmt.Rule, series string, after time.Duration) (summaries []string) {
	t.Helper()
	for _, a := range firingAlerts(t, rule, series, after) {
		text := a.Annotations.String()
		if strings.Contains(text, "no value") || strings.Contains(text, "error expanding") {
			t.Errorf("annotations: %s", text)
		}
		summaries = append(summaries, a.Annotations.Get("summary")+" "+a.Annotations.Get("description"))
	}
	return summaries
}

// firingAlerts evaluates a rule every minute for a duration, with the given series: one per
// line, with a value per minute. It returns the alerts that fire at the end.
func firingAlerts(t *testing.T, rule *rulefmt.Rule, series string, after time.Duration) []*rules.Alert {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	storage := promqltest.LoadedStorage(t, "load 1m\n"+series)
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for at := time.Duration(0); at <= after; at += time.Minute {
		if _, err := alert.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), rules.EngineQueryFunc(engine, storage), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	return slices.DeleteFunc(alert.ActiveAlerts(), func(a *rules.Alert) bool { return a.State != rules.StateFiring })
}

// firingFor returns the values of a label of the alerts that fire after a duration.
func firingFor(t *testing.T, rule *rulefmt.Rule, series []string, after time.Duration, label string) (values []string) {
	t.Helper()
	for _, a := range firingAlerts(t, rule, strings.Join(series, "\n"), after) {
		values = append(values, a.Labels.Get(label))
	}
	slices.Sort(values)
	return values
}

// A scenario is a set of series, and how long the rule is evaluated with them.
type scenario struct {
	after  time.Duration
	series []string
}

// scenarios specifies for each alert a scenario in which it fires, a part of its text, and
// similar scenarios in which it does not fire.
var scenarios = map[string]struct {
	fires scenario
	text  string
	quiet []scenario
}{
	"NodegateDown": {
		scenario{10 * time.Minute, []string{`up{job="nodegate"} 0x60`}}, "",
		[]scenario{{10 * time.Minute, []string{`nodegate_build_info{version="v1"} 1x60`}}, {4 * time.Minute, nil}},
	},
	"NodegateNoLeader": {
		scenario{5 * time.Minute, []string{`leader_election_master_status{name="nodegate",pod="a"} 0x60`, `leader_election_master_status{name="nodegate",pod="b"} 0x60`}}, "",
		[]scenario{
			{time.Hour, []string{`leader_election_master_status{name="nodegate",pod="a"} 0x60`, `leader_election_master_status{name="nodegate",pod="b"} 1x60`}},
			{time.Hour, []string{`leader_election_master_status{name="another"} 0x60`}},
			{time.Hour, []string{`nodegate_build_info 1x60`}}, // without leader election
		},
	},
	"NodegateLeaderChanges": {
		scenario{18 * time.Minute, []string{`nodegate_lease_losses_total{pod="a"} 0x5 1 1 2 3x20`, `nodegate_lease_losses_total{pod="b"} 0x5 0 1 1 2x20`}}, " 5 times",
		[]scenario{
			{18 * time.Minute, []string{`nodegate_lease_losses_total{pod="a"} 0x5 1 1 2x20`, `nodegate_lease_losses_total{pod="b"} 0x5 0 1 1 2x20`}},
			{time.Hour, []string{`nodegate_lease_losses_total{pod="a"} 0x5 9x60`}}, // long ago
		},
	},
	"NodegateGatesUnreadable": {
		scenario{10 * time.Minute, []string{`nodegate_gates_complete{pod="a"} 1x60`, `nodegate_gates_complete{pod="b"} 0x60`}}, "",
		[]scenario{{5 * time.Minute, []string{`nodegate_gates_complete 0x5 1x60`}}},
	},
	"NodegateWatchDown": {
		scenario{10 * time.Minute, []string{`nodegate_watch_up{resource="pods"} 0x60`, `nodegate_watch_up{resource="nodes"} 1x60`}}, "pods",
		[]scenario{
			{time.Hour, []string{`nodegate_watch_up{resource="pods"} 1x60`}},
			{time.Hour, []string{`nodegate_watch_up{resource="nodegates"} 0x60`}}, // NodegateGatesUnreadable fires
			{9 * time.Minute, []string{`nodegate_watch_up{resource="pods"} 0x60`}},
		},
	},
	"NodegateUnknownGates": {
		scenario{30 * time.Minute, []string{`nodegate_unknown_gates 2x60`}}, "(2)",
		[]scenario{{time.Hour, []string{`nodegate_unknown_gates 0x60`}}, {25 * time.Minute, []string{`nodegate_unknown_gates 2x60`}}},
	},
	"NodegateGateNotReady": {
		scenario{10 * time.Minute, []string{`nodegate_gate_not_ready{gate="cni",reason="WriteDenied"} 1x60`, `nodegate_birth_closing_proved{gate="cni"} 1x60`}}, "Gate cni",
		[]scenario{
			{time.Hour, []string{`nodegate_gate_condition{gate="cni",condition="Ready"} 1x60`, `nodegate_gate_condition{gate="cni",condition="Overdue"} 0x60`}},
			{time.Hour, []string{`nodegate_gate_not_ready{gate="cni",reason="BirthNotProved"} 1x60`, `nodegate_birth_closing_proved{gate="cni"} 0x60`}},       // NodegateBirthsOpen fires
			{time.Hour, []string{`nodegate_gate_not_ready{gate="cni",reason="GuardNotProved"} 1x60`, `nodegate_guard_proved{guard="nodegate-records"} 0x60`}}, // NodegateGuardMissing fires
			{9 * time.Minute, []string{`nodegate_gate_not_ready{gate="cni",reason="WriteDenied"} 1x60`}},
		},
	},
	"NodegateGuardMissing": {
		scenario{5 * time.Minute, []string{`nodegate_guard_proved{guard="nodegate-records"} 0x60`, `nodegate_guard_proved{guard="nodegate-parameters"} 1x60`}}, "nodegate-records",
		[]scenario{
			{time.Hour, []string{`nodegate_guard_proved{guard="nodegate-records"} 1x60`}},
			{4 * time.Minute, []string{`nodegate_guard_proved{guard="nodegate-records"} 0x60`}},
		},
	},
	"NodegateBirthsOpen": {
		scenario{5 * time.Minute, []string{`nodegate_birth_closing_proved{gate="cni"} 0x60`, `nodegate_birth_closing_proved{gate="csi"} 1x60`}}, "gate cni",
		[]scenario{
			{time.Hour, []string{`nodegate_birth_closing_proved{gate="cni"} 1x60`, `nodegate_birth_closing_proved_timestamp_seconds{gate="cni"} 0+60x60`}},
			{2 * time.Minute, []string{`nodegate_birth_closing_proved{gate="cni"} 0 0 0 1x60`}},
		},
	},
	"NodegateNodesBornOpen": {
		scenario{10 * time.Minute, []string{`nodegate_closes_total{gate="cni",reason="Birth"} 0 0 0 0 0 3x60`}}, "gate cni",
		[]scenario{
			{time.Hour, []string{`nodegate_closes_total{gate="cni",reason="Birth"} 3x60`, `nodegate_closes_total{gate="cni",reason="Rebooted"} 0+1x60`}},
			{time.Hour, []string{`nodegate_closes_total{gate="cni",reason="Birth"} 0x20 3x60`}}, // long ago
		},
	},
	"NodegateNodesOverdue": {
		scenario{5 * time.Minute, []string{`nodegate_gate_condition{gate="cni",condition="Overdue"} 1x60`, `nodegate_gate_mode{gate="cni",mode="Enforce"} 1x60`}}, "gate cni",
		[]scenario{
			{time.Hour, []string{`nodegate_gate_condition{gate="cni",condition="Overdue"} 0x60`, `nodegate_gate_condition{gate="cni",condition="Throttled"} 1x60`}},
			{time.Hour, []string{`nodegate_gate_condition{gate="cni",condition="Overdue"} 1x60`, `nodegate_gate_mode{gate="cni",mode="DryRun"} 1x60`}},
		},
	},
	"NodegateMostNodesClosed": {
		scenario{15 * time.Minute, []string{`nodegate_gate_nodes{gate="cni",state="closed"} 6x60`, `nodegate_gate_nodes{gate="cni",state="selected"} 10x60`}}, "60% of the selected nodes",
		[]scenario{
			{time.Hour, []string{`nodegate_gate_nodes{gate="cni",state="closed"} 5x60`, `nodegate_gate_nodes{gate="cni",state="selected"} 10x60`}},
			{time.Hour, []string{`nodegate_gate_nodes{gate="cni",state="closed"} 3x60`, `nodegate_gate_nodes{gate="cni",state="selected"} 3x60`}}, // too few nodes
			{time.Hour, []string{`nodegate_gate_nodes{gate="cni",state="closed"} 6x60`, `nodegate_gate_nodes{gate="cni",state="selected"} 10x60`, `nodegate_gate_mode{gate="cni",mode="DryRun"} 1x60`}},
		},
	},
	"NodegateClosingThrottled": {
		scenario{10 * time.Minute, []string{`nodegate_gate_nodes{gate="cni",state="throttled"} 4x60`}}, "4 nodes",
		[]scenario{
			{5 * time.Minute, []string{`nodegate_gate_nodes{gate="cni",state="throttled"} 4x5 0x60`}},
			{time.Hour, []string{`nodegate_gate_nodes{gate="cni",state="throttled"} 4x60`, `nodegate_gate_mode{gate="cni",mode="DryRun"} 1x60`}},
		},
	},
	"NodegateTaintContended": {
		scenario{5 * time.Minute, []string{`nodegate_gate_condition{gate="cni",condition="Contended"} 1x60`}}, "gate cni",
		[]scenario{
			{time.Hour, []string{`nodegate_gate_condition{gate="cni",condition="Contended"} 0x60`, `nodegate_gate_condition{gate="cni",condition="Ready"} 1x60`}},
			{time.Hour, []string{`nodegate_gate_condition{gate="cni",condition="Contended"} 1x60`, `nodegate_gate_mode{gate="cni",mode="DryRun"} 1x60`}}, // gates that would contradict each other
		},
	},
	"NodegateWritesDenied": {
		scenario{15 * time.Minute, []string{`nodegate_patches_total{outcome="denied"} 0+1x60`}}, "",
		[]scenario{{time.Hour, []string{`nodegate_patches_total{outcome="denied"} 5x60`, `nodegate_patches_total{outcome="error"} 0+1x60`}}},
	},
	"NodegateWritesFailing": {
		scenario{20 * time.Minute, []string{`nodegate_patches_total{outcome="error"} 0+1x60`, `nodegate_patches_total{outcome="ok"} 0+3x60`}}, "25% of its patches",
		[]scenario{
			{time.Hour, []string{`nodegate_patches_total{outcome="error"} 0+1x60`, `nodegate_patches_total{outcome="ok"} 0+20x60`}},
			{time.Hour, []string{`nodegate_patches_total{outcome="error"} 5x60`, `nodegate_patches_total{outcome="ok"} 9x60`}},        // nothing to do
			{time.Hour, []string{`nodegate_patches_total{outcome="conflict"} 0+9x60`, `nodegate_patches_total{outcome="ok"} 0+1x60`}}, // not a failure
		},
	},
	"NodegatePodsBypassed": {
		scenario{20 * time.Minute, []string{`nodegate_bypassed_pods_total{gate="cni",certainty="certain"} 0 0 0 2x60`}}, "gate cni",
		[]scenario{{20 * time.Minute, []string{`nodegate_bypassed_pods_total{gate="cni",certainty="certain"} 2x60`}}},
	},
	"NodegatePodsLost": {
		scenario{20 * time.Minute, []string{`nodegate_rejected_pods_total{gate="gpus",certainty="possible",owner="none"} 0 0 0 2x60`}}, "gate gpus",
		[]scenario{
			{20 * time.Minute, []string{`nodegate_rejected_pods_total{gate="gpus",certainty="certain",owner="none"} 2x60`}},
			{20 * time.Minute, []string{`nodegate_rejected_pods_total{gate="gpus",certainty="certain",owner="controller"} 0 0 0 2x60`}}, // replaced
		},
	},
	"NodegateCertificateExpiring": {
		scenario{20 * time.Minute, []string{fmt.Sprintf(`nodegate_webhook_certificate_expiry_timestamp_seconds{pod="a"} %dx60`, 13*86400), `nodegate_webhook_certificate_expiry_timestamp_seconds{pod="b"} 9999999x60`}}, "It expires in 12d",
		[]scenario{
			{time.Hour, []string{fmt.Sprintf(`nodegate_webhook_certificate_expiry_timestamp_seconds %dx60`, 15*86400)}},
			{5 * time.Minute, []string{`nodegate_webhook_certificate_expiry_timestamp_seconds 0x5 9999999x60`}}, // just started
		},
	},
	"NodegateGatePaused": {
		scenario{24 * time.Hour, []string{`nodegate_gate_mode{gate="cni",mode="Paused"} 1x1500`}}, "Gate cni",
		[]scenario{
			{23 * time.Hour, []string{`nodegate_gate_mode{gate="cni",mode="Paused"} 1x1500`}},
			{25 * time.Hour, []string{`nodegate_gate_mode{gate="cni",mode="Enforce"} 1x1600`}},
		},
	},
}

func TestAlerts(t *testing.T) {
	all := alerts(t)
	for i := range all {
		rule := &all[i]
		t.Run(rule.Alert, func(t *testing.T) {
			s, ok := scenarios[rule.Alert]
			if !ok {
				t.Fatal("the alert has no scenario")
			}
			got := firing(t, rule, strings.Join(s.fires.series, "\n"), s.fires.after)
			if len(got) != 1 || !strings.Contains(got[0], s.text) {
				t.Errorf("with %q, these alerts fire: %q, want one with %q", s.fires.series, got, s.text)
			}
			for _, q := range s.quiet {
				if got := firing(t, rule, strings.Join(q.series, "\n"), q.after); len(got) > 0 {
					t.Errorf("with %q for %s, it fires: %q", q.series, q.after, got)
				}
			}
		})
	}
	if len(scenarios) != len(all) {
		t.Errorf("%d scenarios for %d alerts", len(scenarios), len(all))
	}
}

// An outdated proof does not count.
func TestBirthsOpenByAge(t *testing.T) {
	rule := alertNamed(t, "NodegateBirthsOpen")
	series := `nodegate_birth_closing_proved{gate="cni"} 1x60
		nodegate_birth_closing_proved_timestamp_seconds{gate="cni"} 0+60x10 600x50`
	if early, late := firing(t, rule, series, 25*time.Minute), firing(t, rule, series, 32*time.Minute); len(early) != 0 || len(late) != 1 {
		t.Errorf("early: %q, late: %q", early, late)
	}
}

// A replica that takes over may count before the first scrape of its counter. The alert then
// fires, for a limited time. A restart, or a target that could not be scraped for some time,
// does not make it fire again.
func TestCountersThatStartAboveZero(t *testing.T) {
	counters := map[string]string{
		"NodegateNodesBornOpen": `nodegate_closes_total{gate="cni",reason="Birth",pod="%s"} %s`,
		"NodegatePodsBypassed":  `nodegate_bypassed_pods_total{gate="cni",certainty="certain",pod="%s"} %s`,
		"NodegatePodsLost":      `nodegate_rejected_pods_total{gate="cni",certainty="certain",owner="none",pod="%s"} %s`,
	}
	for _, rule := range alerts(t) {
		counter, ok := counters[rule.Alert]
		if !ok {
			continue
		}
		delete(counters, rule.Alert)
		first := fmt.Sprintf(counter, "a", "_x5 3x120")
		for name, s := range map[string]struct {
			series string
			after  time.Duration
			text   string // empty: no alert
		}{
			"at the first scrape":              {first, 6 * time.Minute, " 3 "},
			"minutes later":                    {first, 14 * time.Minute, " 3 "},
			"more after the first scrape":      {fmt.Sprintf(counter, "a", "_x5 3 5x120"), 12 * time.Minute, "gate cni"},
			"long ago":                         {first, 80 * time.Minute, ""},
			"in a container that was replaced": {fmt.Sprintf(counter, "a", "0x5 stale _x30 3x60"), 38 * time.Minute, " 3 "},
			"in a second replica":              {fmt.Sprintf(counter, "a", "7x120") + "\n" + fmt.Sprintf(counter, "b", "_x85 3x30"), 90 * time.Minute, " 3 "},
			"a new pod that counts nothing":    {fmt.Sprintf(counter, "a", "7x80 stale") + "\n" + fmt.Sprintf(counter, "b", "_x80 0x40"), 90 * time.Minute, ""},
			"failed scrape":                    {fmt.Sprintf(counter, "a", "3x80 stale 3x60"), 91 * time.Minute, ""},
			"no scrapes for half an hour":      {fmt.Sprintf(counter, "a", "3x80 stale _x30 3x60"), 115 * time.Minute, ""},
		} {
			got := firing(t, &rule, s.series, s.after)
			if fires := s.text != ""; fires != (len(got) == 1) || fires && !strings.Contains(got[0], s.text) {
				t.Errorf("%s, %s: these alerts fire: %q, want %q", rule.Alert, name, got, s.text)
			}
		}
	}
	if len(counters) > 0 {
		t.Errorf("there are no alerts %q", slices.Sorted(maps.Keys(counters)))
	}
}

var alertRow = regexp.MustCompile("(?m)^\\| \\[`?(Nodegate\\w+)`?\\]\\(runbooks/(Nodegate\\w+)\\.md\\) \\| (\\w+) \\|")

// Every alert has a severity, and a runbook with all sections; docs/metrics.md lists them
// all. Every runbook belongs to an alert.
func TestAlertsHaveTheirPages(t *testing.T) {
	var want, listed []string
	for _, rule := range alerts(t) {
		severity := rule.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has the severity %q", rule.Alert, severity)
		}
		if url := rule.Annotations["runbook_url"]; url != pages+rule.Alert+".md" {
			t.Errorf("%s has the runbook %q", rule.Alert, url)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", rule.Alert)
		}
		want = append(want, rule.Alert+" "+severity)
		page := read(t, runbooks+rule.Alert+".md")
		for _, part := range []string{"# " + rule.Alert + "\n", "\n## Impact\n", "\n## Diagnosis\n", "\n## Mitigation\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("the runbook of %s has no %q", rule.Alert, part)
			}
		}
		if n := strings.Count(page, "\n"); n > 60 {
			t.Errorf("the runbook of %s has %d lines, want at most 60", rule.Alert, n)
		}
	}
	for _, row := range alertRow.FindAllStringSubmatch(read(t, root+"docs/metrics.md"), -1) {
		if row[1] != row[2] {
			t.Errorf("docs/metrics.md: %s links to the runbook of %s", row[1], row[2])
		}
		listed = append(listed, row[1]+" "+row[3])
	}
	if !slices.Equal(want, listed) {
		t.Errorf("docs/metrics.md lists %s\nwant %s", listed, want)
	}
	files, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, isPage := strings.CutSuffix(f.Name(), ".md")
		if isPage && strings.HasPrefix(name, "Nodegate") && !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, name+" ") }) {
			t.Errorf("%s belongs to no alert", f.Name())
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
