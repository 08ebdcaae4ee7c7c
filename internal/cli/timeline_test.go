// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// ago returns the time so many seconds after the creation of a node that is one hour
// old.
func ago(seconds int) time.Time {
	return now.Add(-time.Hour + time.Duration(seconds)*time.Second)
}

// cni is a gate that waits for a daemon and a condition.
const cni = `
metadata: {name: cni}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  deadline: {readySeconds: 600}
  openWhen:
  - {name: agent, daemonSet: {namespace: kube-system, name: agent}}
  - {name: network, condition: {type: NetworkFit, status: "True"}}`

// cniOpened is the gate's record on a node that is one hour old.
const cniOpened = `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:02:10.4Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`

// A life is the history of a node that is one hour old.
type life struct {
	name       string
	gates      []string
	records    map[string]string
	conditions map[string]int
	// agent is the time at which the daemon's pod became ready; 0 if it is not ready.
	agent  int
	web    int
	unread bool
}

// lives are histories of different kinds.
var lives = []life{
	{name: "works", gates: []string{cni, byLabel("sysctl", "")}, records: map[string]string{"cni": cniOpened}, conditions: map[string]int{"NetworkFit": 130}, agent: 95, web: 141},
	{name: "held", gates: []string{cni}, records: map[string]string{"cni": birth}, conditions: map[string]int{"NetworkFit": 130}},
	{name: "interrupted", gates: []string{cni}, records: map[string]string{"cni": cniOpened}, conditions: map[string]int{"NetworkFit": 1800}, agent: 95},
	{name: "rebooted", gates: []string{cni}, records: map[string]string{
		"cni": `{"state":"Closed","reason":"Rebooted","since":"2026-03-01T02:50:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`,
	}, conditions: map[string]int{"Ready": 3010, "NetworkFit": 3020}, agent: 95},
	{name: "unread", gates: []string{cni}, records: map[string]string{"cni": cniOpened, "gone": cniOpened}, conditions: map[string]int{"NetworkFit": 20}, unread: true},
	{name: "no-gates"},
}

// look returns a snapshot of the node and all of its pods.
func (c *life) look(t *testing.T) (*snapshot, *gate.PodList) {
	t.Helper()
	var declared []v1alpha1.NodeGate
	for _, text := range c.gates {
		var ng v1alpha1.NodeGate
		if err := yaml.UnmarshalStrict([]byte(text), &ng); err != nil {
			t.Fatal(err)
		}
		ng.CreationTimestamp.Time = ago(600)
		declared = append(declared, ng)
	}
	s := compile(declared)
	s.now = now
	n := gate.Node{Name: "n1", UID: "uid", BootID: "b", Created: ago(0), Records: c.records}
	if len(c.conditions) == 0 || c.conditions["Ready"] == 0 {
		n.Conditions = append(n.Conditions, gate.Condition{Type: "Ready", Status: corev1.ConditionTrue, Transition: ago(42)})
	}
	for name, since := range c.conditions {
		n.Conditions = append(n.Conditions, gate.Condition{Type: name, Status: corev1.ConditionTrue, Transition: ago(since)})
	}
	agent := gate.DaemonSet{
		Namespace: "kube-system", Name: "agent", UID: "ds", Pods: gate.PodQuery{Namespace: "kube-system", Selector: "app=agent"},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	s.facts = gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}, Items: []gate.DaemonSet{agent}}}
	all := &gate.PodList{At: now, Pods: []gate.BoundPod{{
		Namespace: "kube-system", Name: "agent-x", UID: "x", Daemon: true, Created: ago(2), Bound: ago(2), Starts: []gate.Start{{At: ago(61), Running: true}},
	}}}
	if c.web > 0 {
		all.Pods = append(all.Pods, gate.BoundPod{Namespace: "shop", Name: "web-1", UID: "w", Created: ago(c.web - 30), Bound: ago(c.web), Starts: []gate.Start{{At: ago(c.web + 4)}}})
	}
	if c.unread {
		all = nil
		s.gaps = []read.Error{{Err: errors.New("listing the pods of node n1: pods is forbidden")}}
	} else {
		s.facts.Pods = map[gate.PodQuery][]gate.Pod{agent.Pods: {{UID: "x", Name: "kube-system/agent-x", Owner: "ds", Created: ago(2), Ready: c.agent > 0, ReadySince: ago(c.agent)}}}
	}
	s.facts.Transient.GateKeys = s.keys()
	s.decision = gate.Decide(s.gates, &s.facts, s.now)
	return s, all
}

// testdata contains the expected output of each case, for terminals, for pipes and as
// JSON.
func TestTimeline(t *testing.T) {
	for _, c := range lives {
		t.Run(c.name, func(t *testing.T) {
			s, all := c.look(t)
			answer := s.trace(all)
			raw, err := json.MarshalIndent(answer, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "timeline/"+c.name+".json", string(raw)+"\n")
			for kind, chart := range map[string]chart{"terminal": {strokes: unicodeStrokes, width: 110}, "pipe": {strokes: asciiStrokes, width: pipeWidth}} {
				text := answer.text(chart)
				golden(t, "timeline/"+c.name+"."+kind+".txt", text)
				for line := range strings.Lines(text) {
					if bars := strings.ContainsAny(line, "*●=━"); bars && len([]rune(line)) > chart.width {
						t.Errorf("the line is wider than %d columns: %s", chart.width, line)
					}
				}
				if strings.ContainsAny(answer.text(chart), "─━╌●✓✗") && kind == "pipe" {
					t.Error("the output for a pipe is not ASCII")
				}
			}
		})
	}
}

// testdata contains the expected short report on all of these nodes.
func TestReportText(t *testing.T) {
	var fleet *snapshot
	var facts []gate.Facts
	pods := make(map[string]*gate.PodList)
	for _, c := range lives {
		s, all := c.look(t)
		s.facts.Node.Name = c.name
		s.facts.Node.Labels = map[string]string{"team": c.name[:1], corev1.LabelTopologyZone: "z"}
		facts = append(facts, s.facts)
		pods[c.name] = all
		if fleet == nil {
			fleet = s
		}
	}
	fleet.gaps = []read.Error{{Err: errors.New("listing DaemonSets: forbidden")}}
	golden(t, "timeline/report.txt", reportText(fleet.report(&reportFlags{within: time.Hour, poolLabel: "team"}, facts, pods)))
	golden(t, "timeline/report-of-nothing.txt", reportText(compile(nil).report(&reportFlags{within: time.Hour}, nil, nil)))
}

// Times have a resolution of a second, so a short axis has no finer ticks.
func TestShortAxis(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for seconds, want := range map[int]string{1: "0s 1s", 2: "0s 1s 2s", 3: "0s 3s", 8: "0s 2s 4s 6s 8s"} {
		c := chart{strokes: asciiStrokes, width: pipeWidth, zero: begin, end: begin.Add(time.Duration(seconds) * time.Second)}
		if got := strings.Join(strings.Fields(c.axis()), " "); got != want {
			t.Errorf("the axis of %d s is %q, want %q", seconds, got, want)
		}
	}
}
