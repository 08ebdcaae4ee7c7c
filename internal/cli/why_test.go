// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

var update = flag.Bool("update", false, "write the output to testdata")

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// birth is a record that the API server writes.
const birth = `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`

// situations are nodes with gates in all kinds of states.
var situations = []struct {
	name string
	// gates are NodeGates, in YAML.
	gates []string
	// records and overrides are the node's, by gate; labels and conditions, too.
	records   map[string]string
	overrides map[string]gate.Override
	labels    map[string]string
	ready     corev1.ConditionStatus
	// bare nodes carry no taint, regardless of their records.
	bare bool
	age  time.Duration
}{
	{
		name: "held", age: 3 * time.Minute,
		gates: []string{`
metadata: {name: agent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  deadline: {readySeconds: 600}
  openWhen:
  - {name: pod, daemonSet: {namespace: kube-system, name: agent}}
  - {name: sysctl, label: {key: sysctl}}
  - {name: driver, csiDriver: {name: ebs.csi.aws.com}}`, `
metadata: {name: early}
spec:
  taint: {key: example.com/b, effect: NoSchedule}
  openWhen: [{name: sysctl, label: {key: sysctl}}]`},
		records: map[string]string{"agent": birth, "early": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:58:30Z","boot":"b","source":"crd"}`},
		labels:  map[string]string{"sysctl": "done"},
	},
	{
		name: "about-to-open", age: 3 * time.Minute,
		gates:   []string{byLabel("agent", "")},
		records: map[string]string{"agent": birth}, labels: map[string]string{"fit": ""},
	},
	{
		name: "about-to-close", age: 3 * time.Minute,
		gates: []string{byLabel("agent", "")},
	},
	{
		name: "unreachable-and-overdue", age: time.Hour, ready: corev1.ConditionUnknown,
		gates:   []string{byLabel("agent", "deadline: {readySeconds: 600}")},
		records: map[string]string{"agent": birth},
	},
	{
		name: "dry-run", age: 3 * time.Minute,
		gates: []string{byLabel("agent", "mode: DryRun")},
	},
	{
		name: "not-members", age: time.Hour,
		gates: []string{
			byLabel("ignores", ""), byLabel("paused", "mode: Paused"), byLabel("throttled", "existingNodes: Close"),
			byLabel("tried", "mode: DryRun"),
			byLabel("rejected", "") + "\nstatus: {conditions: [{type: Accepted, status: 'False', reason: TaintKeyNotAllowed, message: the key is not allowed}]}",
		},
	},
	{
		name: "overridden", age: time.Hour,
		gates: []string{byLabel("agent", ""), byLabel("other", "")},
		records: map[string]string{
			"agent": `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`,
			"other": birth,
		},
		overrides: map[string]gate.Override{
			"agent": {State: v1alpha1.StateOpen, Until: now.Add(time.Hour), Reason: "ticket 7", UID: "uid"},
			"gone":  {State: v1alpha1.StateOpen, Until: now.Add(time.Hour), Reason: "ticket 8", UID: "uid"},
		},
	},
	{
		name: "regression", age: time.Hour, bare: true,
		gates:   []string{byLabel("agent", "reclosePolicy: OnRegression")},
		records: map[string]string{"agent": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","source":"crd"}`},
	},
	{
		name: "follows", age: time.Hour,
		gates: []string{`
metadata: {name: repair}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  reopen: Manual
  closeWhen: [{name: broken, label: {key: broken}}]`},
		records: map[string]string{"repair": `{"state":"Closed","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","taint":"example.com/a:NoSchedule","source":"crd"}`},
	},
	{
		name: "unknown-gates", age: time.Hour,
		records: map[string]string{
			"deleted": birth,
			"files":   `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/b:NoSchedule","source":"files"}`,
			"garbled": `{`,
		},
	},
	{
		name: "contended", age: time.Hour, bare: true,
		gates:   []string{byLabel("agent", "")},
		records: map[string]string{"agent": `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","fought":3,"foughtAt":"2026-03-01T02:59:55Z"}`},
	},
	{
		name: "opted-out", age: 3 * time.Minute,
		gates:  []string{byLabel("agent", "")},
		labels: map[string]string{v1alpha1.OptOutLabel: v1alpha1.OptOutValue},
	},
}

// byLabel returns a gate that opens by a label.
func byLabel(name, more string) string {
	return "metadata: {name: " + name + "}\nspec:\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: fit, label: {key: fit}}]\n  " + more
}

// testdata contains the expected output of each case, as text and as JSON.
func TestWhy(t *testing.T) {
	for _, c := range situations {
		t.Run(c.name, func(t *testing.T) {
			var declared []v1alpha1.NodeGate
			for _, text := range c.gates {
				var ng v1alpha1.NodeGate
				if err := yaml.UnmarshalStrict([]byte(text), &ng); err != nil {
					t.Fatal(err)
				}
				ng.CreationTimestamp.Time = now.Add(-30 * time.Minute)
				declared = append(declared, ng)
			}
			s := compile(declared)
			s.now = now
			n := gate.Node{Name: "n1", UID: "uid", BootID: "b", Created: now.Add(-c.age), Labels: c.labels, Records: c.records, Overrides: map[string]string{}}
			for name, o := range c.overrides {
				n.Overrides[name] = o.String()
			}
			if c.ready == "" {
				c.ready = corev1.ConditionTrue
			}
			if !c.bare && len(c.records) > 0 {
				n.Taints = []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
			}
			n.Conditions = []gate.Condition{{Type: string(corev1.NodeReady), Status: c.ready, Transition: now.Add(-c.age / 2)}}
			s.facts = gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}}}
			s.facts.Transient.GateKeys = s.keys()
			s.decision = gate.Decide(s.gates, &s.facts, s.now)
			e := s.explain()
			raw, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "why/"+c.name+".txt", e.text(signs))
			golden(t, "why/"+c.name+".pipe.txt", e.text(plainMarks))
			golden(t, "why/"+c.name+".json", string(raw)+"\n")
		})
	}
}

// golden compares output with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
