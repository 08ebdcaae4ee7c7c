// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNeedsAndProof(t *testing.T) {
	g := aGate("g", waitingFor(agent("a"), flagSignal("x"), agent("b")))
	if n := g.Needs(nil); len(n.Pods) != 2 || !g.ProvesBoot() {
		t.Errorf("needs %+v, proves %v", n, g.ProvesBoot())
	}
	if g = aGate("g"); g.ProvesBoot() {
		t.Error("a flag proves a boot")
	}
}

// An openWhen gate waits for a signal that does not hold, and a closeWhen gate for one that is
// unknown, or for any if all hold.
func TestWaiting(t *testing.T) {
	for _, c := range []struct {
		states    []State
		want      int
		closeWhen int
	}{
		{[]State{Holds, Holds}, -1, 0},
		{[]State{Unknown, NotYet}, 0, -1},
		{[]State{Holds, NotYet}, 1, -1},
		{[]State{Holds, Unknown}, 1, 1},
		{[]State{Unknown}, 0, 0},
		{nil, -1, -1},
	} {
		var v Verdict
		for _, s := range c.states {
			v.Readings = append(v.Readings, Reading{State: s})
		}
		if got, closeWhen := v.Waiting(false), v.Waiting(true); got != c.want || closeWhen != c.closeWhen {
			t.Errorf("%v: waits for %d, want %d; with closeWhen for %d, want %d", c.states, got, c.want, closeWhen, c.closeWhen)
		}
	}
	for name, s := range map[string]State{"Holds": Holds, "NotYet": NotYet, "Unknown": Unknown} {
		if s.String() != name || ParseState(name) != s {
			t.Errorf("the name of %d is %q, want %q, which is parsed as %d", s, s, name, ParseState(name))
		}
	}
}

func TestTransient(t *testing.T) {
	tr := Transient{Prefixes: []string{"mine.example/"}, GateKeys: map[string]bool{"g.example/x": true, "karpenter.sh/gate": true}}
	for key, want := range map[string]struct{ is, foreign bool }{
		"node.kubernetes.io/not-ready":                     {true, true},
		"node.cloudprovider.kubernetes.io/uninitialized":   {true, true},
		"karpenter.sh/unregistered":                        {true, true},
		"readiness.k8s.io/x":                               {true, true},
		"startup-taint.cluster-autoscaler.kubernetes.io/x": {true, true},
		"ToBeDeletedByClusterAutoscaler":                   {true, true},
		"NodeReadiness":                                    {true, true},
		"mine.example/x":                                   {true, true},
		"g.example/x":                                      {true, false},
		"karpenter.sh/gate":                                {true, false},
		"pool":                                             {false, false},
		"node.kubernetes.iox/y":                            {false, false},
	} {
		if is, foreign := tr.Is(key), tr.Foreign([]corev1.Taint{{Key: key}}) != nil; is != want.is || foreign != want.foreign {
			t.Errorf("%s: transient %v, foreign %v", key, is, foreign)
		}
	}
}
