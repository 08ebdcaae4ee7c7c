// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// ago returns the time so many seconds after the creation of a node that is one hour
// old.
func ago(seconds int) time.Time {
	return Now.Add(-time.Hour + time.Duration(seconds)*time.Second)
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

// Life is the history of a node that is one hour old.
type Life struct {
	Name       string
	gates      []string
	records    map[string]string
	conditions map[string]int
	// agent is the time at which the daemon's pod became ready; 0 if it is not ready.
	agent  int
	web    int
	unread bool
}

// Lives are histories of different kinds.
var Lives = []Life{
	{Name: "works", gates: []string{cni, ByLabel("sysctl", "")}, records: map[string]string{"cni": cniOpened}, conditions: map[string]int{"NetworkFit": 130}, agent: 95, web: 141},
	{Name: "held", gates: []string{cni}, records: map[string]string{"cni": Birth}, conditions: map[string]int{"NetworkFit": 130}},
	{Name: "interrupted", gates: []string{cni}, records: map[string]string{"cni": cniOpened}, conditions: map[string]int{"NetworkFit": 1800}, agent: 95},
	{Name: "rebooted", gates: []string{cni}, records: map[string]string{
		"cni": `{"state":"Closed","reason":"Rebooted","since":"2026-03-01T02:50:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`,
	}, conditions: map[string]int{"Ready": 3010, "NetworkFit": 3020}, agent: 95},
	{Name: "unread", gates: []string{cni}, records: map[string]string{"cni": cniOpened, "gone": cniOpened}, conditions: map[string]int{"NetworkFit": 20}, unread: true},
	{Name: "no-gates"},
}

// Gates returns the gates of the node. They are older than the node.
func (l *Life) Gates(t *testing.T) []v1alpha1.NodeGate {
	t.Helper()
	declared := Declare(t, l.gates...)
	for i := range declared {
		declared[i].CreationTimestamp.Time = ago(-600)
	}
	return declared
}

// Facts returns the facts about the node, and all of its pods. The pods are nil if they
// could not be read.
func (l *Life) Facts() (gate.Facts, *gate.PodList) {
	n := gate.Node{Name: "n1", UID: "uid", BootID: "b", Created: ago(0), Records: l.records}
	if len(l.conditions) == 0 || l.conditions["Ready"] == 0 {
		n.Conditions = append(n.Conditions, gate.Condition{Type: "Ready", Status: corev1.ConditionTrue, Transition: ago(42)})
	}
	for name, since := range l.conditions {
		n.Conditions = append(n.Conditions, gate.Condition{Type: name, Status: corev1.ConditionTrue, Transition: ago(since)})
	}
	agent := gate.DaemonSet{
		Namespace: "kube-system", Name: "agent", UID: "ds", Pods: gate.PodQuery{Namespace: "kube-system", Selector: "app=agent"},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	facts := gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}, Items: []gate.DaemonSet{agent}}}
	all := &gate.PodList{At: Now, Pods: []gate.BoundPod{{
		Namespace: "kube-system", Name: "agent-x", UID: "x", Daemon: true, Created: ago(2), Bound: ago(2), Starts: []gate.Start{{At: ago(61), Running: true}},
	}}}
	if l.web > 0 {
		all.Pods = append(all.Pods, gate.BoundPod{Namespace: "shop", Name: "web-1", UID: "w", Created: ago(l.web - 30), Bound: ago(l.web), Starts: []gate.Start{{At: ago(l.web + 4)}}})
	}
	if l.unread {
		return facts, nil
	}
	facts.Pods = map[gate.PodQuery][]gate.Pod{agent.Pods: {{UID: "x", Name: "kube-system/agent-x", Owner: "ds", Created: ago(2), Ready: l.agent > 0, ReadySince: ago(l.agent)}}}
	return facts, all
}
