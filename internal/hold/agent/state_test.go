// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
)

const boot = "boot-2"

func gateNamed(name string, change func(*gateclient.StoredGate)) *gateclient.StoredGate {
	g := &gateclient.StoredGate{NodeGate: v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeGateSpec{
			Taint:        v1alpha1.Taint{Key: name, Effect: corev1.TaintEffectNoSchedule},
			BypassedPods: v1alpha1.BypassedHold, Mode: v1alpha1.ModeEnforce,
		},
	}}
	change(g)
	return g
}

func podWith(uid string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{Tolerations: tolerations}}
}

// Gates that apply to the node and hold pods are in the state, open only if their record says so
// for this boot.
func TestGatesOfTheState(t *testing.T) {
	const (
		openNow    = `{"state":"Open","boot":"boot-2"}`
		openBefore = `{"state":"Open","boot":"boot-1"}`
		closedNow  = `{"state":"Closed","boot":"boot-2","taint":"g:NoSchedule"}`
		forcedOpen = `{"state":"Closed","boot":"boot-2","taint":"g:NoSchedule","override":"Open","overrideSince":"2026-01-01T00:00:00Z"}`
		forcedShut = `{"state":"Open","boot":"boot-2","taint":"g:NoSchedule","override":"Closed","overrideSince":"2026-01-01T00:00:00Z"}`
	)
	unchanged := func(*gateclient.StoredGate) {}
	open := []hold.Gate{{Name: "g", Open: true, Seconds: 600}}
	closed := []hold.Gate{{Name: "g", Seconds: 600}}
	for _, test := range []struct {
		name   string
		record string
		change func(*gateclient.StoredGate)
		want   []hold.Gate
	}{
		{"open in this boot", openNow, unchanged, open},
		{"open in the previous boot", openBefore, unchanged, closed},
		{"closed", closedNow, unchanged, closed},
		{"opened by an override", forcedOpen, unchanged, open},
		{"closed by an override", forcedShut, unchanged, closed},
		{"not a member", "", unchanged, []hold.Gate{}},
		{"damaged record", "{", unchanged, []hold.Gate{}},
		{"limited", closedNow, func(g *gateclient.StoredGate) { g.Spec.HoldSeconds = ptr.To[int32](5) }, []hold.Gate{{Name: "g", Seconds: 5}}},
		{"reports only", closedNow, func(g *gateclient.StoredGate) { g.Spec.BypassedPods = v1alpha1.BypassedReport }, []hold.Gate{}},
		{"paused", closedNow, func(g *gateclient.StoredGate) { g.Spec.Mode = v1alpha1.ModePaused }, closed},
		{"paused, open in the previous boot", openBefore, func(g *gateclient.StoredGate) { g.Spec.Mode = v1alpha1.ModePaused }, open},
		{"dry run", closedNow, func(g *gateclient.StoredGate) { g.Spec.Mode = v1alpha1.ModeDryRun }, []hold.Gate{}},
		{"unreadable", closedNow, func(g *gateclient.StoredGate) { g.ReadError = "newer" }, []hold.Gate{}},
		{"not accepted", closedNow, func(g *gateclient.StoredGate) {
			g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
		}, []hold.Gate{}},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.RecordAnnotationPrefix + "g": test.record}}}
		got := stateOf(boot, node, []*gateclient.StoredGate{gateNamed("g", test.change)}, nil)
		if diff := cmp.Diff(&hold.State{Boot: boot, Gates: test.want, Pods: map[string]hold.BoundPod{}}, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// A pod waits for each gate with a taint that it does not tolerate.
func TestPodsOfTheState(t *testing.T) {
	reclosing := gateNamed("b", func(g *gateclient.StoredGate) {
		g.Spec.RecloseTaint = &v1alpha1.Taint{Key: "b-again", Effect: corev1.TaintEffectNoExecute}
	})
	preferring := gateNamed("c", func(g *gateclient.StoredGate) {
		g.Spec.Taint.Effect = corev1.TaintEffectPreferNoSchedule
		g.Spec.RecloseTaint = &v1alpha1.Taint{Key: "c-again", Effect: corev1.TaintEffectNoSchedule}
	})
	gates := []*gateclient.StoredGate{gateNamed("a", func(*gateclient.StoredGate) {}), reclosing, preferring}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for _, g := range gates {
		node.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name] = `{"state":"Open","boot":"boot-2"}`
	}
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
	}
	deleted := podWith("deleted")
	deleted.DeletionTimestamp = &metav1.Time{}
	deleted.Spec.RestartPolicy = corev1.RestartPolicyNever
	got := stateOf(boot, node, gates, []*corev1.Pod{
		podWith("workload"), podWith("daemon", exists("")), podWith("some", exists("a"), exists("b")),
		deleted,
		podWith("reclosing", exists("b"), exists("b-again"), exists("c-again")),
	})
	want := map[string]hold.BoundPod{
		"workload": {Gates: []string{"a", "b", "c"}, Restarts: true}, "daemon": {Restarts: true},
		"some": {Gates: []string{"b", "c"}, Restarts: true}, "reclosing": {Gates: []string{"a"}, Restarts: true},
		"deleted": {Gates: []string{"a", "b", "c"}, Terminating: true},
	}
	if diff := cmp.Diff(want, got.Pods); diff != "" {
		t.Error(diff)
	}
}
