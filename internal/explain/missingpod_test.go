// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// If a DaemonSet has no pod because it does not tolerate a taint of the node, the next step names the
// taint, also if it belongs to no gate. TestExplanation has the taint of another gate.
func TestNextStepOfAMissingPod(t *testing.T) {
	const general = "find out why the node has no such pod"
	for name, c := range map[string]struct {
		taint corev1.Taint
		want  string
	}{
		"no other taint":      {corev1.Taint{}, general},
		"a tolerated taint":   {corev1.Taint{Key: "tolerated", Effect: corev1.TaintEffectNoExecute}, general},
		"keeps no pod off":    {corev1.Taint{Key: "example.com/prefer-not", Effect: corev1.TaintEffectPreferNoSchedule}, general},
		"belongs to no gate":  {corev1.Taint{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}, "does not tolerate the taint node.cilium.io/agent-not-ready:NoSchedule, so"},
		"evicts, has a value": {corev1.Taint{Key: "node.cilium.io/x", Value: "v", Effect: corev1.TaintEffectNoExecute}, "does not tolerate the taint node.cilium.io/x=v:NoExecute, so"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &explain.Facts{Gates: gateset.Reported(clitest.Declare(t, waitsForAgent)), Now: clitest.Now}
			n := gate.Node{Name: "n1", UID: "uid", BootID: "b", Created: clitest.Now.Add(-time.Minute)}
			n.Records = map[string]string{"storage": strings.Replace(clitest.Birth, "example.com/a", "example.com/b", 1)}
			n.Taints = []corev1.Taint{{Key: "example.com/b", Effect: corev1.TaintEffectNoSchedule}}
			if c.taint.Key != "" {
				n.Taints = append(n.Taints, c.taint)
			}
			agent := daemonOfAgent("example.com/b", "tolerated")
			sets := &gate.DaemonSets{Items: []gate.DaemonSet{agent}, Observed: map[string]bool{agent.Namespace: true}}
			f.Node = gate.Facts{Node: n, DaemonSets: sets, Pods: map[gate.PodQuery][]gate.Pod{agent.Pods: {}}}
			f.Decision = f.Gates.Decide(&f.Node, f.Now)
			if next := explain.Of(f).Gates[0].Next; !strings.Contains(next, c.want) {
				t.Errorf("the next step is %q, want %q", next, c.want)
			}
		})
	}
}

// waitsForAgent is a gate that waits for the DaemonSet of daemonOfAgent.
const waitsForAgent = `
metadata: {name: storage}
spec:
  taint: {key: example.com/b, effect: NoSchedule}
  openWhen: [{name: agent, daemonSet: {namespace: kube-system, name: agent}}]`

// daemonOfAgent returns a DaemonSet that tolerates taints with some keys.
func daemonOfAgent(tolerates ...string) gate.DaemonSet {
	ds := gate.DaemonSet{Namespace: "kube-system", Name: "agent", UID: "ds", Pods: gate.PodQuery{Namespace: "kube-system", Selector: "app=agent"}}
	for _, key := range tolerates {
		ds.Tolerations = append(ds.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return ds
}
