// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const warmingKey = "a.example/warming" // not transient by its name

// cascade returns a node on which the gates a and b are closed, and b, which waits for a
// DaemonSet that does not tolerate the taint of a.
func cascade(t *testing.T) (a, b gate.Gate, w *world) {
	t.Helper()
	compiled := func(name, key string, source v1alpha1.SignalSource) gate.Gate {
		ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(-2 * day))}}
		ng.Spec = v1alpha1.NodeGateSpec{
			Taint:    v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen: []v1alpha1.Signal{{Name: "signal", SignalSource: source}},
		}
		g, err := Compile(ng, v1alpha1.SourceCRD)
		if err != nil {
			t.Fatal(err)
		}
		g.Accepted = true
		return g
	}
	a = compiled("a", warmingKey, v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "warm"}})
	b = compiled("b", gateKey, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{
		Namespaces: []string{"kube-system"}, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
	}})
	w = aNode(with("agent", tolerating(gateKey)))
	w.facts.Node.Taints, w.facts.Node.Records = nil, make(map[string]string)
	w.facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	addRecords(&w.facts, v1alpha1.StateClosed, a, b)
	return a, b, w
}

// A daemon that does not tolerate another gate's taint starts when that gate opens. A gate
// waits for it even if the set of gates no longer contains the key of that taint.
func TestRecordedTaintsAreTransient(t *testing.T) {
	for name, c := range map[string]struct {
		// change returns the gate a after a change, or nil if it is not listed.
		change func(a gate.Gate, f *gate.Facts) *gate.Gate
		// stays is true if the taint of a stays on the node.
		stays bool
	}{
		"deleted": {func(gate.Gate, *gate.Facts) *gate.Gate { return nil }, false},
		"not listed": {func(_ gate.Gate, f *gate.Facts) *gate.Gate {
			f.CompleteSources = nil
			return nil
		}, true},
		"in dry run": {func(a gate.Gate, _ *gate.Facts) *gate.Gate {
			a.Mode = v1alpha1.ModeDryRun
			return &a
		}, false},
		"edited": {func(a gate.Gate, f *gate.Facts) *gate.Gate {
			a.Taint.Key = "a.example/other"
			f.Transient.GateKeys[a.Taint.Key] = true
			return &a
		}, false},
		"paused and edited": {func(a gate.Gate, f *gate.Facts) *gate.Gate {
			a.Taint.Key, a.Mode = "a.example/other", v1alpha1.ModePaused
			f.Transient.GateKeys[a.Taint.Key] = true
			return &a
		}, true},
		"key not allowed": {func(a gate.Gate, f *gate.Facts) *gate.Gate {
			f.Allowed = gate.AllowedTaints{{Key: gateKey, Effect: corev1.TaintEffectNoSchedule}: true}
			a.Accepted = false
			return &a
		}, true},
		"deleted, and its key not allowed": {func(_ gate.Gate, f *gate.Facts) *gate.Gate {
			f.Allowed = gate.AllowedTaints{{Key: gateKey, Effect: corev1.TaintEffectNoSchedule}: true}
			return nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, w := cascade(t)
			gates := []gate.Gate{b}
			if a := c.change(a, &w.facts); a != nil {
				gates = append(gates, *a)
			}
			for range 2 { // before and after the write
				d := gate.Decide(gates, &w.facts, epoch)
				v := d.Verdict("b")
				if v.After != v1alpha1.StateClosed || v.Readings[0].Reason != v1alpha1.ReadingPodMissing || v.Readings[0].Subject != "kube-system/agent" {
					t.Fatalf("the daemon does not run, but the gate is %s: %+v", v.After, v.Readings)
				}
				apply(&d, &w.facts)
			}
			carries := slices.ContainsFunc(w.facts.Node.Taints, func(t corev1.Taint) bool { return t.Key == warmingKey })
			if carries != c.stays {
				t.Errorf("the node has the taint of the other gate: %v", carries)
			}
			running("agent")(w)
			d := gate.Decide(gates, &w.facts, epoch)
			if v := d.Verdict("b"); v.After != v1alpha1.StateOpen {
				t.Errorf("the daemon runs, but the gate is %s: %+v", v.After, v.Readings)
			}
		})
	}
}

// A taint for which no record accounts belongs to another program.
func TestOtherTaintsAreLasting(t *testing.T) {
	_, b, w := cascade(t)
	delete(w.facts.Node.Records, "a")
	d := gate.Decide([]gate.Gate{b}, &w.facts, epoch)
	if v := d.Verdict("b"); v.After != v1alpha1.StateOpen || v.Readings[0].Reason != v1alpha1.ReadingNoDaemonSetBelongs {
		t.Errorf("the gate is %s: %+v", v.After, v.Readings)
	}
}

// apply writes a decision to the node.
func apply(d *gate.Decision, f *gate.Facts) {
	f.Node.Taints, f.Node.Records = d.Taints, maps.Clone(f.Node.Records)
	for name, raw := range d.Records {
		if f.Node.Records[name] = raw; raw == "" {
			delete(f.Node.Records, name)
		}
	}
}
