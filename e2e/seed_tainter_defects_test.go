// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Defects of Tainter. TestSeedTainterSeveralMatchersOneTaint covers two matchers with the
// same taint.

// Patterns match the whole text. Tainter's patterns match substrings: "Ready" also matches
// NotReady and PodsReady, and "Pressure" matches three types.
func TestSeedTainterPatternsAreAnchored(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("pattern", matching("it", "Kube.*Deadlock|Pressure", "True|Bad")))
	k := e.registered("n1")[0]
	k.setCondition("MemoryPressure", "True")
	k.setCondition("PressureRising", "True")
	k.setCondition("KubeDeadlock", "NotTrue")
	k.setCondition("Pressure", "TrueEnough")
	k.holds("pattern", isNone)
	k.setCondition("KubeletDeadlock", "Bad")
	k.becomes("pattern", isClosed, keyA)
}

// Taints that Tainter has added are adopted, with any value, and removed from nodes whose
// condition has cleared. Other taints remain.
func TestSeedTainterTaintsAreTakenOver(t *testing.T) {
	e := newEnv(t)
	tainted := func(name string) *kubelet {
		k := e.kubelet(name)
		k.register(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{
				{Key: "foreign", Effect: corev1.TaintEffectNoSchedule},
				{Key: keyA, Value: "other", Effect: corev1.TaintEffectNoSchedule},
			}
		})
		return k
	}
	faulty, cleared := tainted("faulty"), tainted("cleared")
	faulty.setCondition("NetworkInterfaceCard", "Kaput")
	e.startController(0)
	ng := taintWhen("nic", broken())
	ng.Spec.Taint.Value = "right"
	ng.Spec.Budget.MaxReclosed = percent("0%") // adopting a taint needs none
	e.declare(ng)
	faulty.becomes("nic", isClosed, keyA)
	if !strings.Contains(keys(faulty.node()), keyA+"=right:NoSchedule") {
		t.Errorf("the value was not corrected: %s", keys(faulty.node()))
	}
	e.eventually("the taint is removed from the other node", func() error { return unless(!hasTaint(cleared.node(), keyA)) })
	for _, k := range []*kubelet{faulty, cleared} {
		if !hasTaint(k.node(), "foreign") {
			t.Errorf("node %s lost a foreign taint: %s", k.name, keys(k.node()))
		}
	}
}

// A node without conditions is not closed. In Tainter, a node without status or spec caused a
// panic that ended its task, but not its process.
func TestSeedTainterNodeWithoutConditions(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("nic", broken()))
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Status = corev1.NodeStatus{} })
	k.holds("nic", isNone)
	k.setCondition("NetworkInterfaceCard", "Kaput")
	k.becomes("nic", isClosed, keyA)
}

// The API server rejects gates without conditions, and with invalid patterns or taints. In
// Tainter, a matcher without conditions tainted the whole cluster, and an invalid pattern or
// taint was detected at run time or not at all.
func TestSeedTainterRefusesMatchersThatCannotBeMeant(t *testing.T) {
	e := newEnv(t)
	nic := map[string]any{"name": "nic", "condition": map[string]any{"type": "NIC", "status": "Kaput"}}
	for name, c := range map[string]struct {
		signals []any
		taint   map[string]any
		message string
	}{
		"no conditions":                                {signals: []any{}, message: "should have at least 1 items"},
		"an empty condition":                           {signals: []any{map[string]any{"name": "nic", "condition": map[string]any{}}}, message: "set exactly one of type and typePattern"},
		"an empty pattern":                             {signals: []any{map[string]any{"name": "nic", "condition": map[string]any{"typePattern": "", "status": "True"}}}, message: "should be at least 1 chars long"},
		"a bad pattern":                                {signals: []any{map[string]any{"name": "nic", "condition": map[string]any{"typePattern": "(", "status": "True"}}}, message: "RE2"},
		"an impossible key":                            {signals: []any{nic}, taint: map[string]any{"key": "a b", "effect": "NoSchedule"}, message: "qualified name"},
		"NoExecute without acknowledgement":            {signals: []any{nic}, taint: map[string]any{"key": keyA, "effect": "NoExecute"}, message: "add PodEviction to acknowledge"},
		"detaching of volumes without acknowledgement": {signals: []any{nic}, taint: map[string]any{"key": v1alpha1.TaintOutOfService, "effect": "NoExecute"}, message: "add VolumeDetach to acknowledge"},
	} {
		t.Run(name, func(t *testing.T) {
			taint := c.taint
			if taint == nil {
				taint = map[string]any{"key": keyA, "effect": "NoSchedule"}
			}
			ng := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeGate", "metadata": map[string]any{"name": "matcher"},
				"spec": map[string]any{"nodeSelector": map[string]any{}, "taint": taint, "closeWhen": c.signals},
			}}
			err := e.admin.Create(t.Context(), ng)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got error %v, want Invalid with %q", err, c.message)
			}
		})
	}
}

// While Tainter still runs, it adds its taint again whenever the node changes. nodegate removes
// it once, backs off, and reports the other writer.
func TestSeedTainterStillRunning(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("nic", broken()))
	k, began := e.registered("n1")[0], time.Now()
	for range 2 {
		e.must(e.editTaints(t.Context(), "n1", "tainter", func(taints []corev1.Taint) []corev1.Taint {
			return append(slices.Clone(taints), corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
		}))
		e.eventually("the taint is removed, or its contention reported", func() error {
			if hasTaint(k.node(), keyA) {
				return e.condition("nic", v1alpha1.ConditionContended, metav1.ConditionTrue, "")
			}
			return nil
		})
	}
	e.contended("nic")
	if n, most := len(k.nodeWrites()), 1+attempts(began); n == 0 || n > most {
		t.Errorf("nodegate wrote the node %d times, want between 1 and %d", n, most)
	}
}
