// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

const (
	keyA       = "a.example/not-ready"
	keyB       = "b.example/not-ready"
	keyC       = "c.example/not-ready"
	foreignKey = "foreign.example/x"
	startupKey = "ebs.csi.aws.com/agent-not-ready"
)

// version is a version of the gates.
type version struct {
	name  string
	gates []gate.Gate
	keys  map[string]bool
}

// gate returns the gate with the given name, or nil.
func (v *version) gate(name string) *gate.Gate {
	for i := range v.gates {
		if v.gates[i].Name == name {
			return &v.gates[i]
		}
	}
	return nil
}

// newVersion returns a version with these gates.
func newVersion(name string, gates ...gate.Gate) version {
	v := version{name: name, gates: gates, keys: make(map[string]bool)}
	acceptance := gate.Accept(gates, gate.KeyPolicy{})
	for i := range gates {
		g := &gates[i]
		g.Accepted = acceptance[g.Name].Accepted
		for _, t := range g.Taints() {
			v.keys[t.Key] = v.keys[t.Key] || g.Mode != v1alpha1.ModeDryRun
		}
	}
	return v
}

type change func(*v1alpha1.NodeGateSpec)

// compile returns a gate that is two days old, with these changes.
func compile(t *testing.T, name, key string, changes ...change) gate.Gate {
	t.Helper()
	ng := &v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime((2 * day).time())},
		Spec: v1alpha1.NodeGateSpec{
			NodeSelector:  v1alpha1.LabelSelector{MatchLabels: map[string]string{poolLabel: "gpu"}},
			Taint:         v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			ReclosePolicy: v1alpha1.RecloseOnReboot, ExistingNodes: v1alpha1.ExistingIgnore,
			Timing: v1alpha1.Timing{CloseAfterSeconds: new(int32(30))},
		},
	}
	for _, change := range changes {
		change(&ng.Spec)
	}
	g, err := signal.Compile(ng, v1alpha1.SourceCRD)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func byDaemon(spec *v1alpha1.NodeGateSpec) {
	spec.OpenWhen = append(spec.OpenWhen, v1alpha1.Signal{Name: "agent", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}})
}

func byDaemons(spec *v1alpha1.NodeGateSpec) {
	spec.OpenWhen = []v1alpha1.Signal{{Name: "agents", SignalSource: v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}}}}
}

func andFit(spec *v1alpha1.NodeGateSpec) {
	spec.OpenWhen = append(spec.OpenWhen, v1alpha1.Signal{Name: "fit", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: fitLabel}}})
}

func evicting(spec *v1alpha1.NodeGateSpec) { spec.Taint.Effect = corev1.TaintEffectNoExecute }

func onRegression(spec *v1alpha1.NodeGateSpec) {
	spec.ReclosePolicy = v1alpha1.RecloseOnRegression
}

func neverReclosing(spec *v1alpha1.NodeGateSpec) { spec.ReclosePolicy = v1alpha1.RecloseNever }

func closingExisting(spec *v1alpha1.NodeGateSpec) { spec.ExistingNodes = v1alpha1.ExistingClose }

func reclosingBy(key string) change {
	return func(spec *v1alpha1.NodeGateSpec) {
		spec.RecloseTaint = &v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
	}
}

func inMode(mode v1alpha1.Mode) change {
	return func(spec *v1alpha1.NodeGateSpec) { spec.Mode = mode }
}

// whileSelected makes a gate closed on all of its nodes.
func whileSelected(spec *v1alpha1.NodeGateSpec) {
	spec.CloseWhen = []v1alpha1.Signal{{Name: "pool", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: poolLabel}}}}
}

func whilePresent(key string) change {
	return whileTrue(fmt.Sprintf("taints.exists(t, t.key == %q)", key))
}

func whileAbsent(key string) change {
	return whileTrue(fmt.Sprintf("!taints.exists(t, t.key == %q)", key))
}

func whileTrue(expression string) change {
	return func(spec *v1alpha1.NodeGateSpec) {
		spec.CloseWhen = []v1alpha1.Signal{{Name: "other", SignalSource: v1alpha1.SignalSource{Expression: expression}}}
	}
}

// isOpen makes the node a member of the gates, with the gates open.
func isOpen(names ...string) func(*api, *machine) {
	return func(a *api, m *machine) {
		annotations := map[string]string{"foreign": "x"}
		for _, name := range names {
			r := gate.Record{State: v1alpha1.StateOpen, Since: long.time(), Reason: v1alpha1.ReasonSignalsHold, Boot: bootID(0), Taint: name + ".example/not-ready:NoSchedule", Source: v1alpha1.SourceCRD}
			annotations[v1alpha1.RecordAnnotationPrefix+name] = r.String()
		}
		m.node.marks = a.marks(m.node.marks.taints, annotations)
	}
}
