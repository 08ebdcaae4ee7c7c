// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// tainterConfig is a configuration of Tainter for tests.
type tainterConfig struct {
	Reconciler struct {
		Matchers []tainterMatcher `json:"matchers"`
	} `json:"reconciler"`
}

type tainterMatcher struct {
	Taint struct {
		Effect string `json:"effect"`
		Key    string `json:"key"`
		Value  string `json:"value"`
	} `json:"taint"`
	Conditions []tainterWant `json:"conditions"`
}

type tainterWant struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// taints returns the taints that Tainter would add to a node: a matcher's taint if the
// patterns of each of its conditions are found anywhere in the type and status of one of the
// node's conditions.
func (c tainterConfig) taints(conditions []gate.Condition) []string {
	var out []string
	for _, m := range c.Reconciler.Matchers {
		all := true
		for _, want := range m.Conditions {
			all = all && slices.ContainsFunc(conditions, func(has gate.Condition) bool {
				return regexp.MustCompile(want.Type).MatchString(has.Type) && regexp.MustCompile(want.Status).MatchString(string(has.Status))
			})
		}
		if all {
			out = append(out, m.Taint.Key+":"+m.Taint.Effect)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c tainterConfig) text(format string) string {
	data, err := json.Marshal(c)
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		panic(err)
	}
	if format != "toml" {
		return string(data)
	}
	var b strings.Builder
	for _, m := range c.Reconciler.Matchers {
		fmt.Fprintf(&b, "[[reconciler.matchers]]\n[reconciler.matchers.taint]\neffect = %q\nkey = %q\nvalue = %q\n",
			m.Taint.Effect, m.Taint.Key, m.Taint.Value)
		for _, want := range m.Conditions {
			fmt.Fprintf(&b, "[[reconciler.matchers.conditions]]\ntype = '%s'\nstatus = '%s'\n", want.Type, want.Status)
		}
	}
	return b.String()
}

func drawTainterConfig(t *rapid.T) tainterConfig {
	var c tainterConfig
	c.Reconciler.Matchers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) tainterMatcher {
		var m tainterMatcher
		m.Taint.Key = rapid.SampledFrom([]string{"a", "example.com/a", "example.com/b"}).Draw(t, "key")
		m.Taint.Value = "v" + m.Taint.Key[len(m.Taint.Key)-1:]
		m.Taint.Effect = rapid.SampledFrom([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}).Draw(t, "effect")
		m.Conditions = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) tainterWant {
			return tainterWant{
				Type: rapid.SampledFrom([]string{
					"Ready", "^Ready", "Ready$", "^Ready$", "Pressure", "^(Memory|Disk)Pressure$", "Memory|Disk", "^Memory|^Disk",
					"(?i)ready", "R.*y", "[A-Z]ressure", "", "Odd.Type", `\.`, "(?i:DISK)Pressure",
				}).Draw(t, "type"),
				Status: rapid.SampledFrom([]string{"True", "^True$", "False|Unknown", "^F", "n$", "", "[^T]", "Tru", "Broken+"}).Draw(t, "status"),
			}
		}), 1, 3).Draw(t, "conditions")
		return m
	}), 1, 5).Draw(t, "matchers")
	return c
}

func drawConditions(t *rapid.T) []gate.Condition {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) gate.Condition {
		return gate.Condition{
			Type:   rapid.SampledFrom([]string{"Ready", "NotReady", "PodsReady", "ReadyToGo", "MemoryPressure", "DiskPressure", "Odd.Type", "x"}).Draw(t, "type"),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown", "Brokennn", "NotTrue"}).Draw(t, "status"),
		}
	}), 0, 5, func(c gate.Condition) string { return c.Type }).Draw(t, "conditions")
}

// compileAll compiles gates like the controller.
func compileAll(t tester, list []*v1alpha1.NodeGate) []gate.Gate {
	t.Helper()
	var out []gate.Gate
	for _, ng := range list {
		g, err := signal.Compile(ng, v1alpha1.SourceCRD)
		if err != nil {
			t.Fatalf("compiling %s: %v", ng.Name, err)
		}
		g.Created = epoch.Add(-time.Hour)
		out = append(out, g)
	}
	accepted := gate.Accept(out, gate.KeyPolicy{})
	for i := range out {
		a := accepted[out[i].Name]
		if !a.Accepted {
			t.Fatalf("gate %s is not accepted: %s", out[i].Name, a.Message)
		}
		out[i].Accepted = true
	}
	return out
}

// freshNode returns the facts about a node that has just been created, with sufficient
// budget.
func freshNode(gates []gate.Gate, conditions []gate.Condition) *gate.Facts {
	f := &gate.Facts{
		Node: gate.Node{
			Name: "n1", UID: "u", Created: epoch.Add(-time.Minute), BootID: "b", Labels: labels.Set{}, Conditions: conditions,
		},
		DaemonSets: &gate.DaemonSets{}, Granted: map[string]bool{},
	}
	for _, g := range gates {
		f.Granted[g.Name] = true
	}
	return f
}

func taintsOf(d gate.Decision) []string {
	var out []string
	for _, taint := range d.Taints {
		out = append(out, taint.Key+":"+string(taint.Effect))
	}
	slices.Sort(out)
	return out
}

// Gates match the same nodes as Tainter, which finds patterns anywhere. If two matchers have
// equal taints, Tainter fails to write them, and the gates share one taint.
func TestSeedTainterConvertKeepsMeaning(t *testing.T) {
	converted := 0
	rapid.Check(t, func(t *rapid.T) {
		config := drawTainterConfig(t)
		format := rapid.SampledFrom([]string{"toml", "yaml", "json"}).Draw(t, "format")
		r := Tainter(Source{Name: "config." + format, Data: []byte(config.text(format))}, TainterOptions{})
		if r.Errors() > 0 {
			everywhere := func(f Finding) bool { return strings.Contains(f.Message, "match every node") }
			if !slices.ContainsFunc(r.Findings, everywhere) || r.Errors() > len(config.Reconciler.Matchers) {
				t.Fatalf("rejected:\n%s%s", findingsText(r), config.text(format))
			}
			return // Tainter would taint the whole cluster
		}
		converted++
		gates := compileAll(t, checkGates(t, r))
		conditions := drawConditions(t)
		got := taintsOf(gate.Decide(gates, freshNode(gates, conditions), epoch))
		if diff := cmp.Diff(config.taints(conditions), got); diff != "" {
			t.Fatalf("conditions %v (-Tainter +gates):\n%s\n%s", conditions, diff, yamlString(t, r))
		}
	})
	if converted == 0 {
		t.Error("every configuration was rejected")
	}
}

func yamlString(t tester, r *Result) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteYAML(&b); err != nil {
		t.Fatalf("writing: %v", err)
	}
	return b.String()
}

// A configuration has the same result in all forms of TOML, in YAML and in JSON.
func TestSeedTainterConvertFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := drawTainterConfig(t)
		var want []Gate
		for i, format := range []string{"toml", "yaml", "json"} {
			r := Tainter(Source{Name: "x", Data: []byte(config.text(format))}, TainterOptions{Format: format})
			for i := range r.all {
				r.all[i].Line, r.all[i].notes = 0, nil
			}
			if i == 0 {
				want = r.all
			}
			if diff := cmp.Diff(want, r.all, cmp.AllowUnexported(Gate{})); diff != "" {
				t.Fatalf("%s (-TOML +%s):\n%s", format, format, diff)
			}
		}
	})
}

// With --anchor, a pattern matches the whole type or status.
func TestSeedTainterConvertAnchor(t *testing.T) {
	var config tainterConfig
	m := tainterMatcher{Conditions: []tainterWant{{"Ready", "False|Unknown"}}}
	m.Taint.Key, m.Taint.Value, m.Taint.Effect = "a", "b", "NoSchedule"
	config.Reconciler.Matchers = []tainterMatcher{m}
	for _, test := range []struct {
		anchor    bool
		condition gate.Condition
		want      bool
	}{
		{false, gate.Condition{Type: "Ready", Status: "False"}, true},
		{false, gate.Condition{Type: "PodsReady", Status: "False"}, true},
		{true, gate.Condition{Type: "Ready", Status: "False"}, true},
		{true, gate.Condition{Type: "Ready", Status: "Unknown"}, true},
		{true, gate.Condition{Type: "Ready", Status: "True"}, false},
		{true, gate.Condition{Type: "PodsReady", Status: "False"}, false},
	} {
		r := Tainter(Source{Name: "x.toml", Data: []byte(config.text("toml"))}, TainterOptions{Anchor: test.anchor})
		gates := compileAll(t, checkGates(t, r))
		d := gate.Decide(gates, freshNode(gates, []gate.Condition{test.condition}), epoch)
		if got := len(d.Taints) > 0; got != test.want || len(gates) != 1 {
			t.Errorf("anchor %v, %s=%s: tainted %v, want %v", test.anchor, test.condition.Type, test.condition.Status, got, test.want)
		}
	}
}

// The finding that every node or a healthy node matches is about what the gate matches, which
// --anchor changes.
func TestSeedTainterConvertAnchorWarnings(t *testing.T) {
	const every, healthy = "the conditions match every node", "a healthy node matches"
	for _, test := range []struct {
		kind, status      string
		found, asAnchored string
	}{
		{"", "", every, every},
		{"a*", "", every, ""},
		{"^", ".*", every, ""},
		{".*", "x{0,2}", every, ""},
		{"eady", "True", healthy, ""},
		{"ea.y", "T|U", healthy, ""},
		{"Ready", "True", healthy, healthy},
		{"Rea.y", "T.*|U", healthy, healthy},
		{"NotReady", "True", "", ""},
		{strings.Repeat("(", 999) + "z" + strings.Repeat(")", 999), "", "", ""}, // one more level is invalid
	} {
		text := fmt.Sprintf("[[reconciler.matchers]]\ntaint = {effect='NoSchedule', key='a', value='b'}\nconditions = [{type='%s', status='%s'}]\n", test.kind, test.status)
		for anchor, want := range map[bool]string{false: test.found, true: test.asAnchored} {
			r := Tainter(Source{Name: "x.toml", Data: []byte(text)}, TainterOptions{Anchor: anchor})
			for _, warning := range []string{every, healthy} {
				has := slices.ContainsFunc(r.Findings, func(f Finding) bool { return strings.Contains(f.Message, warning) })
				if has != (warning == want) {
					t.Errorf("%q=%q, anchor %v: %q: %v", test.kind, test.status, anchor, warning, has)
				}
			}
		}
	}
}

// Tainter's taint stays when the condition clears, and so does the gate's, until a user
// removes it. nodegate removes the out-of-service taint itself.
func TestSeedTainterConvertTaintStays(t *testing.T) {
	for key, want := range map[string]v1alpha1.Reopen{"example.com/a": v1alpha1.ReopenManual, v1alpha1.TaintOutOfService: ""} {
		text := fmt.Sprintf("[[reconciler.matchers]]\ntaint = {effect='NoExecute', key='%s', value='a'}\nconditions = [{type='^A$', status='^True$'}]\n", key)
		r := Tainter(Source{Name: "x.toml", Data: []byte(text)}, TainterOptions{})
		if len(r.all) != 1 || r.all[0].NodeGate.Spec.Reopen != want {
			t.Errorf("%s: want reopen %q, got:\n%s", key, want, yamlString(t, &Result{Gates: r.all}))
		}
	}
}
