// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const againKey = "status.example/not-ready"

var bothTaints = []v1alpha1.Taint{
	{Key: gateKey, Effect: corev1.TaintEffectNoSchedule}, {Key: againKey, Effect: corev1.TaintEffectNoSchedule},
}

// A daemon that tolerates only one of its gate's two taints will cause a deadlock,
// which is reported as soon as the gate exists.
func TestDiagnoseBothTaints(t *testing.T) {
	agent := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}
	either, err := compileSignal(&v1alpha1.Signal{AnyOf: []v1alpha1.NamedSource{{Name: "agent", SignalSource: agent}}})
	if err != nil {
		t.Fatal(err)
	}
	all := v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}}
	for name, c := range map[string]struct {
		tolerates []string
		want      string
	}{
		"both":                  {[]string{gateKey, againKey}, ""},
		"only the taint":        {[]string{gateKey}, "kube-system/agent does not tolerate " + againKey + ":NoSchedule"},
		"only the recloseTaint": {[]string{againKey}, intolerant},
		"neither":               {nil, intolerant},
	} {
		sets := &aNode(with("agent", tolerating(c.tolerates...))).sets
		for kind, s := range map[string]gate.Signal{"daemonSet": mustCompile(t, agent), "daemonSets": mustCompile(t, all), "anyOf": either} {
			r := Diagnose(s, bothTaints, sets)
			if deadlocked := r.Reason == deadlock; deadlocked != (c.want != "") || r.Subject != c.want {
				t.Errorf("%s, tolerating %s: %s %q, want %q", kind, name, r.Reason, r.Subject, c.want)
			}
		}
	}
}

// A reading depends on the taint that is on the node, and an expression does not see
// either of the gate's own taints.
func TestReadingWithTwoTaints(t *testing.T) {
	agent := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}
	noTaint := v1alpha1.SignalSource{Expression: "taints.size() == 0"}
	both := []func(*world){tainted(gateKey, corev1.TaintEffectNoSchedule), tainted(againKey, corev1.TaintEffectNoSchedule)}
	first := append(both, with("agent", tolerating(gateKey)))
	for name, c := range map[string]struct {
		signal   v1alpha1.SignalSource
		node     *world
		reclosed bool
		want     v1alpha1.ReadingReason
	}{
		"at birth, tolerating the first":     {agent, aNode(first...), false, missing},
		"closed again, tolerating the first": {agent, aNode(first...), true, deadlock},
		"an expression at birth":             {noTaint, aNode(both...), false, v1alpha1.ReadingMatches},
		"an expression, closed again":        {noTaint, aNode(both...), true, v1alpha1.ReadingMatches},
	} {
		t.Run(name, func(t *testing.T) {
			g := aClosedGate(mustCompile(t, c.signal), gate.Record{Boot: "a"}, c.node)
			g.RecloseTaint = bothTaints[1]
			r := gate.Record{State: v1alpha1.StateClosed, Boot: "a", Taint: gate.TaintText(bothTaints[0]), Source: g.Source}
			if c.reclosed {
				r.Reclosed, r.Taint = true, gate.TaintText(bothTaints[1])
			}
			c.node.facts.Node.Records["cni"] = r.String()
			d := gate.Decide([]gate.Gate{g}, &c.node.facts, epoch)
			if got := d.Verdicts[0].Readings[0].Reason; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
