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

func TestWaiting(t *testing.T) {
	for want, readings := range map[int][]Reading{
		-1: {{State: Holds}, {State: Holds}}, 0: {{State: Unknown}, {State: NotYet}}, 1: {{State: Holds}, {State: NotYet}},
	} {
		if got := (&Verdict{Readings: readings}).Waiting(); got != want {
			t.Errorf("waits for %d, want %d", got, want)
		}
	}
	if Holds.String() != "Holds" || NotYet.String() != "NotYet" || Unknown.String() != "Unknown" {
		t.Error("unexpected names of states")
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
		if is, foreign := tr.Is(key), tr.Foreign([]corev1.Taint{{Key: key}}); is != want.is || foreign != want.foreign {
			t.Errorf("%s: transient %v, foreign %v", key, is, foreign)
		}
	}
}
