// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func nodeGate() *v1alpha1.NodeGate {
	ng := &v1alpha1.NodeGate{}
	ng.Name, ng.CreationTimestamp = "cni", metav1.NewTime(epoch)
	ng.Spec.Taint = v1alpha1.Taint{Key: gateKey, Value: "v", Effect: "NoSchedule"}
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "gpu"}
	ng.Spec.Timing = v1alpha1.Timing{CloseAfterSeconds: new(int32(120)), RolloutGraceSeconds: new(int32(600))}
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "l", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "k"}}}}
	return ng
}

func TestCompile(t *testing.T) {
	g, err := Compile(nodeGate(), v1alpha1.SourceCRD)
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != "cni" || g.Source != "crd" || !g.Created.Equal(epoch) || g.Taint.Value != "v" ||
		g.CloseAfter != 2*time.Minute || g.RolloutGrace != 10*time.Minute || len(g.Signals) != 1 || g.Signals[0].Name != "l" {
		t.Errorf("compiled to %+v", g)
	}
	if g.Reclose != v1alpha1.RecloseOnReboot || g.Existing != v1alpha1.ExistingIgnore || g.Accepted || g.Broken {
		t.Errorf("defaults: %+v", g)
	}
	if taints := g.Taints(); len(taints) != 1 {
		t.Errorf("taints: %+v", taints)
	}
	ng := nodeGate()
	ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: "again", Effect: "NoExecute"}
	if g, err = Compile(ng, v1alpha1.SourceCRD); err != nil || len(g.Taints()) != 2 || g.Taints()[1] != *ng.Spec.RecloseTaint {
		t.Errorf("taints: %+v, %v", g.Taints(), err)
	}
	if !g.Selector.Matches(labels.Set{"pool": "gpu"}) || g.Selector.Matches(labels.Set{"pool": "cpu"}) {
		t.Errorf("selects %s", g.Selector)
	}
}

func TestCompileTiming(t *testing.T) {
	ng := nodeGate()
	ng.Spec.Timing = v1alpha1.Timing{CloseAfterSeconds: new(int32), RolloutGraceSeconds: new(int32)}
	if g, _ := Compile(ng, ""); g.CloseAfter != 0 || g.RolloutGrace != 0 {
		t.Errorf("zero is %s, %s", g.CloseAfter, g.RolloutGrace)
	}
	ng.Spec.Timing = v1alpha1.Timing{}
	if g, _ := Compile(ng, ""); g.CloseAfter != 2*time.Minute || g.RolloutGrace != 10*time.Minute {
		t.Errorf("nothing is %s, %s", g.CloseAfter, g.RolloutGrace)
	}
}

func TestCompileCloseWhen(t *testing.T) {
	ng := nodeGate()
	ng.Spec.OpenWhen, ng.Spec.CloseWhen = nil, ng.Spec.OpenWhen
	g, err := Compile(ng, v1alpha1.SourceCRD)
	if err != nil || !g.CloseWhen || g.Manual || len(g.Signals) != 1 {
		t.Errorf("compiled to %+v, %v", g, err)
	}
	if a := gate.Accept([]gate.Gate{g}, gate.KeyPolicy{})["cni"]; a.Reason != v1alpha1.ReasonAccepted {
		t.Errorf("NoBootEvidence for a closeWhen gate: %+v", a)
	}
	ng.Spec.Reopen = v1alpha1.ReopenManual
	if g, _ := Compile(ng, v1alpha1.SourceCRD); !g.Manual {
		t.Error("reopen Manual is lost")
	}
}

func TestCompileRefuses(t *testing.T) {
	bad := v1alpha1.LabelSelector{MatchLabels: map[string]string{"bad key": "x"}}
	first := func(s v1alpha1.SignalSource) func(*v1alpha1.NodeGate) {
		return func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen[0].SignalSource = s }
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.NodeGate)
		says   string
		broken bool
	}{
		"selector":       {func(ng *v1alpha1.NodeGate) { ng.Spec.NodeSelector = bad }, "nodeSelector", true},
		"not read":       {func(ng *v1alpha1.NodeGate) { ng.ReadError = "json: cannot unmarshal" }, "cannot read: json: cannot unmarshal", true},
		"no signal":      {func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen = nil }, "neither has a signal", false},
		"both lists":     {func(ng *v1alpha1.NodeGate) { ng.Spec.CloseWhen = ng.Spec.OpenWhen }, "set only one of them", false},
		"empty lists":    {func(ng *v1alpha1.NodeGate) { ng.Spec.CloseWhen, ng.Spec.OpenWhen = ng.Spec.OpenWhen[:0], nil }, "neither has a signal", false},
		"no kind":        {first(v1alpha1.SignalSource{}), "signal l", false},
		"expression":     {first(v1alpha1.SignalSource{Expression: "labels.a == 1"}), "line 1, column 10", false},
		"sets' selector": {first(v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Selector: bad}}), "selector", false},
		"pods' selector": {first(v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{Selector: bad}}), "selector", false},
		"type pattern":   {first(v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "("}}), "pattern", false},
		"status pattern": {first(v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{StatusPattern: "a)|(b"}}), "pattern", false},
	} {
		t.Run(name, func(t *testing.T) {
			ng := nodeGate()
			c.change(ng)
			g, err := Compile(ng, v1alpha1.SourceCRD)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v does not contain %q", err, c.says)
			}
			if len(g.Signals) != 0 || g.Broken != c.broken {
				t.Errorf("compiled to %+v", g)
			}
			if a := gate.Accept([]gate.Gate{g}, gate.KeyPolicy{})["cni"]; a.Accepted {
				t.Error("a gate that does not compile is accepted")
			}
			// Nodes that it closed stay closed.
			w := aNode()
			w.facts.Node.Records = map[string]string{"cni": `{"state":"Closed","boot":"a","taint":"` + gateKey + `=v:NoSchedule","source":"crd"}`}
			if d := gate.Decide([]gate.Gate{g}, &w.facts, epoch); d.Changes || d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("opens: %+v", d)
			}
		})
	}
}
