// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
)

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
	// conditions are the node's besides Ready.
	conditions []gate.Condition
	groups     map[string]gate.Group
	pods       map[gate.PodQuery][]gate.Pod
	daemonSets []gate.DaemonSet
	// bare nodes do not carry the taints of their records.
	bare bool
	// notServed is true if the API server does not serve NodeGates.
	notServed bool
	age       time.Duration
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
		records: map[string]string{"agent": clitest.Birth, "early": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:58:30Z","boot":"b","source":"crd"}`},
		labels:  map[string]string{"sysctl": "done"},
	},
	{
		name: "expression", age: 3 * time.Minute,
		gates: []string{`
metadata: {name: agent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  openWhen:
  - {name: sysctl, label: {key: sysctl}}
  - {name: fit, expression: '"fit" in labels'}`},
		records: map[string]string{"agent": clitest.Birth},
		labels:  map[string]string{"sysctl": "done"},
	},
	{
		name: "about-to-open", age: 3 * time.Minute,
		gates:   []string{clitest.ByLabel("agent", "")},
		records: map[string]string{"agent": clitest.Birth}, labels: map[string]string{"fit": ""},
	},
	{
		name: "about-to-close", age: 3 * time.Minute,
		gates: []string{clitest.ByLabel("agent", "")},
	},
	{
		name: "held-and-about-to-close", age: 3 * time.Minute,
		gates:   []string{clitest.ByLabel("agent", ""), clitest.ByLabel("late", "")},
		records: map[string]string{"agent": clitest.Birth},
	},
	{
		name: "unreachable-and-overdue", age: time.Hour, ready: corev1.ConditionUnknown,
		gates:   []string{clitest.ByLabel("agent", "deadline: {readySeconds: 600}")},
		records: map[string]string{"agent": clitest.Birth},
	},
	{
		name: "overdue-and-published-next", age: time.Hour,
		gates:   []string{clitest.ByLabel("agent", "deadline: {readySeconds: 600, condition: Publish}")},
		records: map[string]string{"agent": `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","overdue":true}`},
	},
	{
		name: "dry-run", age: 3 * time.Minute,
		gates: []string{clitest.ByLabel("agent", "mode: DryRun")},
	},
	{
		name: "not-members", age: time.Hour,
		gates: []string{
			clitest.ByLabel("ignores", ""), clitest.ByLabel("paused", "mode: Paused"), clitest.ByLabel("throttled", "existingNodes: Close"),
			clitest.ByLabel("tried", "mode: DryRun"),
			clitest.ByLabel("rejected", "") + "\nstatus: {conditions: [{type: Accepted, status: 'False', reason: TaintKeyNotAllowed, message: the key is not allowed}]}",
		},
	},
	{
		name: "overridden", age: time.Hour,
		gates: []string{clitest.ByLabel("agent", ""), clitest.ByLabel("other", "")},
		records: map[string]string{
			"agent": `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`,
			"other": clitest.Birth,
		},
		overrides: map[string]gate.Override{
			"agent": {State: v1alpha1.StateOpen, Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"},
			"gone":  {State: v1alpha1.StateOpen, Until: clitest.Now.Add(time.Hour), Reason: "ticket 8", UID: "uid"},
		},
	},
	{
		name: "overridden-closed", age: time.Hour,
		gates: []string{clitest.ByLabel("agent", "")},
		records: map[string]string{
			"agent": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`,
		},
		overrides: map[string]gate.Override{"agent": {State: v1alpha1.StateClosed, Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"}},
	},
	{
		name: "paused-overridden", age: time.Hour,
		gates: []string{clitest.ByLabel("agent", "mode: Paused")},
		records: map[string]string{
			"agent": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`,
		},
		overrides: map[string]gate.Override{"agent": {State: v1alpha1.StateClosed, Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"}},
	},
	{
		name: "not-served", age: time.Hour, notServed: true,
		records: map[string]string{"agent": clitest.Birth},
	},
	{
		name: "file-overridden", age: time.Hour, bare: true,
		records: map[string]string{
			"agent": `{"state":"Closed","reason":"Birth","taint":"example.com/a:NoSchedule","source":"files","override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`,
		},
		overrides: map[string]gate.Override{"agent": {State: v1alpha1.StateOpen, Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"}},
	},
	{
		name: "regression", age: time.Hour, bare: true,
		gates:   []string{clitest.ByLabel("agent", "reclosePolicy: OnRegression")},
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
		records: map[string]string{"repair": followed},
	},
	{
		name: "follows-unknown", age: time.Hour,
		gates: []string{`
metadata: {name: stale}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  closeWhen: [{name: disk, condition: {type: DiskBroken, status: "True", maxHeartbeatAgeSeconds: 300}}]`, `
metadata: {name: lost}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  closeWhen:
  - {name: present, label: {key: present}}
  - {name: link, condition: {type: LinkDown, status: "True"}}`, `
metadata: {name: absent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  closeWhen: [{name: checked, condition: {type: Unchecked, status: "True", whenMissing: Holds}}]`, `
metadata: {name: either}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  closeWhen:
  - name: link-or-label
    anyOf:
    - {name: link, condition: {type: LinkDown, status: "True"}}
    - {name: broken, label: {key: broken}}`},
		records: map[string]string{"stale": followed, "lost": followed, "absent": followed, "either": followed},
		labels:  map[string]string{"present": ""},
		conditions: []gate.Condition{
			{Type: "DiskBroken", Status: corev1.ConditionTrue, Transition: clitest.Now.Add(-50 * time.Minute), Heartbeat: clitest.Now.Add(-10 * time.Minute)},
			{Type: "LinkDown", Status: corev1.ConditionUnknown, Transition: clitest.Now.Add(-20 * time.Minute)},
		},
	},
	{
		name: "unknown-gates", age: time.Hour,
		records: map[string]string{
			"deleted": clitest.Birth,
			"files":   `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/b:NoSchedule","source":"files"}`,
			"garbled": `{`,
		},
	},
	{
		name: "contended", age: time.Hour, bare: true,
		gates:   []string{clitest.ByLabel("agent", "")},
		records: map[string]string{"agent": `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","fought":3,"foughtAt":"2026-03-01T02:59:55Z"}`},
	},
	{
		name: "taint-removed", age: time.Hour, bare: true,
		gates:   []string{clitest.ByLabel("agent", "")},
		records: map[string]string{"agent": clitest.Birth},
	},
	{
		name: "check-missing", age: 3 * time.Minute,
		gates: []string{`
metadata: {name: preflight}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  openWhen: [{name: check, completed: {namespace: preflight, selector: {matchLabels: {app: preflight}}}}]`},
		records: map[string]string{"preflight": clitest.Birth},
		pods:    map[gate.PodQuery][]gate.Pod{{Namespace: "preflight", Selector: "app=preflight", Runs: true}: {}},
	},
	{
		name: "daemon-kept-away", age: 3 * time.Minute,
		gates: []string{
			clitest.ByLabel("network", ""), waitsForAgent,
		},
		records:    map[string]string{"network": clitest.Birth, "storage": strings.Replace(clitest.Birth, "example.com/a", "example.com/b", 1)},
		daemonSets: []gate.DaemonSet{daemonOfAgent("example.com/b")},
		pods:       map[gate.PodQuery][]gate.Pod{daemonOfAgent().Pods: {}},
	},
	{
		name: "group-incomplete", age: 3 * time.Minute,
		gates: []string{
			clitest.ByLabel("waits", ofFour), clitest.ByLabel("lacks", ofFour+"\n  nodeSelector: {matchLabels: {rack: r1}}\n  deadline: {readySeconds: 600}"),
			clitest.ByLabel("alone", "openTogether: {labelKey: no/such, atLeast: 4}"), clitest.ByLabel("sized", "openTogether: {labelKey: rack, sizeLabelKey: no/size, atLeast: 90%}"),
			strings.Replace(clitest.ByLabel("unready", ofFour), "key: fit", "key: other", 1), clitest.ByLabel("joining", ofFour),
		},
		records: map[string]string{"joining": clitest.Birth, "waits": clitest.Birth, "lacks": clitest.Birth, "alone": clitest.Birth, "sized": clitest.Birth, "unready": clitest.Birth},
		labels:  map[string]string{"fit": "", "rack": "r1"},
		groups: map[string]gate.Group{
			"waits":   {Fit: 2, Unfit: []string{"n4"}, UnfitCount: 1, Known: true},
			"joining": {Fit: 1, Known: true},
			"sized":   {Known: true},
			"lacks":   {Unfit: []string{"n2", "n3", "n4"}, UnfitCount: 9, Known: true},
			"unready": {Fit: 2, Unfit: []string{"n4"}, UnfitCount: 1, Known: true},
		},
	},
	{
		name: "group-lost", age: time.Hour, bare: true,
		gates:   []string{clitest.ByLabel("agent", ofFour+"\n  closeTogether: WhenIncomplete")},
		records: map[string]string{"agent": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","source":"crd"}`},
		labels:  map[string]string{"fit": "", "rack": "r1"},
		groups:  map[string]gate.Group{"agent": {Fit: 2, Unfit: []string{"n4"}, UnfitCount: 1, Known: true}},
	},
	{
		name: "soft", age: 3 * time.Minute,
		gates: []string{
			strings.Replace(clitest.ByLabel("agent", ""), "NoSchedule", "PreferNoSchedule", 1), strings.Replace(clitest.ByLabel("new", ""), "NoSchedule", "PreferNoSchedule", 1),
		},
		records: map[string]string{"agent": strings.Replace(clitest.Birth, "NoSchedule", "PreferNoSchedule", 1)},
	},
	{
		name: "effect-edited", age: 3 * time.Minute,
		gates:   []string{strings.Replace(clitest.ByLabel("agent", ""), "NoSchedule", "PreferNoSchedule", 1)},
		records: map[string]string{"agent": clitest.Birth},
	},
	{
		name: "opted-out", age: 3 * time.Minute,
		gates:  []string{clitest.ByLabel("agent", "")},
		labels: map[string]string{v1alpha1.OptOutLabel: v1alpha1.OptOutValue},
	},
}

// followed is the record of a closed closeWhen gate.
const followed = `{"state":"Closed","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","taint":"example.com/a:NoSchedule","source":"crd"}`

// ofFour makes a gate open on four nodes of a rack together.
const ofFour = "openTogether: {labelKey: rack, atLeast: 4}"

// recordedTaint returns the taint of a record, or "".
func recordedTaint(record string) string {
	r, err := gate.ParseRecord(record)
	if err != nil {
		return ""
	}
	return r.Taint
}

// testdata contains the expected output of each case, as text and as JSON.
func TestExplanation(t *testing.T) {
	for _, c := range situations {
		t.Run(c.name, func(t *testing.T) {
			f := &explain.Facts{Gates: gateset.Reported(clitest.Declare(t, c.gates...)), Now: clitest.Now}
			n := gate.Node{Name: "n1", UID: "uid", BootID: "b", Created: clitest.Now.Add(-c.age), Labels: c.labels, Records: c.records, Overrides: map[string]string{}}
			for name, o := range c.overrides {
				n.Overrides[name] = o.String()
			}
			if c.ready == "" {
				c.ready = corev1.ConditionTrue
			}
			for _, record := range c.records {
				key, effect, ok := strings.Cut(recordedTaint(record), ":")
				if taint := (corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)}); ok && !c.bare && !slices.Contains(n.Taints, taint) {
					n.Taints = append(n.Taints, taint)
				}
			}
			n.Conditions = append(c.conditions, gate.Condition{Type: string(corev1.NodeReady), Status: c.ready, Transition: clitest.Now.Add(-c.age / 2)})
			f.Node = gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{Items: c.daemonSets, Observed: map[string]bool{"kube-system": true}}}
			f.Node.Groups, f.Node.Pods = c.groups, c.pods
			if f.Node.CompleteSources = f.Gates.Sources; c.notServed {
				f.Node.CompleteSources = nil
			}
			f.Decision = f.Gates.Decide(&f.Node, f.Now)
			e := explain.Of(f)
			for _, g := range e.Gates {
				if g.State == v1alpha1.StateClosed && !g.DryRun && g.Next == "" && g.NotInForce == "" && g.Ring == "" {
					t.Errorf("the output does not say what closed gate %s waits for", g.Gate)
				}
			}
			raw, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, c.name+".txt", e.Text(printer.UnicodeMarks))
			clitest.Golden(t, c.name+".pipe.txt", e.Text(printer.ASCIIMarks))
			clitest.Golden(t, c.name+".json", string(raw)+"\n")
		})
	}
}
