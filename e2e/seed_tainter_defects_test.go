// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

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
	k.has("MemoryPressure", "True")
	k.has("PressureRising", "True")
	k.has("KubeDeadlock", "NotTrue")
	k.has("Pressure", "TrueEnough")
	k.holds("pattern", isNone)
	k.has("KubeletDeadlock", "Bad")
	k.becomes("pattern", isClosed, keyA)
}

// What Tainter left on the nodes is taken over, whatever its value, and lifted
// where the condition has cleared. Other taints stay.
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
	sick, well := tainted("sick"), tainted("well")
	sick.has("NetworkInterfaceCard", "Kaput")
	e.startController(0)
	ng := taintWhen("nic", kaput())
	ng.Spec.Taint.Value = "right"
	ng.Spec.Budget.MaxReclosed = percent("0%") // what is there already needs none
	e.declare(ng)
	sick.becomes("nic", isClosed, keyA)
	if !strings.Contains(keys(sick.node()), keyA+"=right:NoSchedule") {
		t.Errorf("the wrong value is kept: %s", keys(sick.node()))
	}
	e.eventually("the taint of old is lifted", func() error {
		if hasTaint(well.node(), keyA) {
			return errNotYet
		}
		return nil
	})
	for _, k := range []*kubelet{sick, well} {
		if !hasTaint(k.node(), "foreign") {
			t.Errorf("node %s lost a foreign taint: %s", k.name, keys(k.node()))
		}
	}
}

// A node without status or spec had Tainter's task panic, and its process go on
// without it.
func TestSeedTainterNodeWithoutConditions(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("nic", kaput()))
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Status = corev1.NodeStatus{} })
	k.holds("nic", isNone)
	k.has("NetworkInterfaceCard", "Kaput")
	k.becomes("nic", isClosed, keyA)
}

// A matcher without conditions tainted the whole cluster; a bad pattern or an
// impossible taint was found at run time, if ever.
func TestSeedTainterRefusesMatchersThatCannotBeMeant(t *testing.T) {
	e := newEnv(t)
	nic := map[string]any{"name": "nic", "condition": map[string]any{"type": "NIC", "status": "Kaput"}}
	for name, c := range map[string]struct {
		signals []any
		taint   map[string]any
		says    string
	}{
		"no conditions":        {signals: []any{}, says: "should have at least 1 items"},
		"an empty condition":   {signals: []any{map[string]any{"name": "nic", "condition": map[string]any{}}}, says: "set exactly one of type and typePattern"},
		"an empty pattern":     {signals: []any{map[string]any{"name": "nic", "condition": map[string]any{"typePattern": "", "status": "True"}}}, says: "should be at least 1 chars long"},
		"a bad pattern":        {signals: []any{map[string]any{"name": "nic", "condition": map[string]any{"typePattern": "(", "status": "True"}}}, says: "RE2"},
		"an impossible key":    {signals: []any{nic}, taint: map[string]any{"key": "a b", "effect": "NoSchedule"}, says: "qualified name"},
		"NoExecute unasked":    {signals: []any{nic}, taint: map[string]any{"key": keyA, "effect": "NoExecute"}, says: "add PodEviction to acknowledge"},
		"detaching of volumes": {signals: []any{nic}, taint: map[string]any{"key": v1alpha1.TaintOutOfService, "effect": "NoExecute"}, says: "add VolumeDetach to acknowledge"},
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
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v does not say %q", err, c.says)
			}
		})
	}
}

// A Tainter that is still running puts its taint back whenever the node changes.
// nodegate gives way, and says who it is.
func TestSeedTainterStillRunning(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("nic", kaput()))
	k := e.registered("n1")[0]
	for range 2 {
		e.must(e.editTaints(t.Context(), "n1", "tainter", func(taints []corev1.Taint) []corev1.Taint {
			return append(slices.Clone(taints), corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
		}))
		e.eventually("the taint is lifted, or the fight is told", func() error {
			if hasTaint(k.node(), keyA) {
				return e.condition("nic", v1alpha1.ConditionContended, metav1.ConditionTrue, "")
			}
			return nil
		})
	}
	e.must(e.condition("nic", v1alpha1.ConditionContended, metav1.ConditionTrue, ""))
	if n := len(e.nodeWrites("n1")); n != 1 {
		t.Errorf("nodegate wrote the node %d times, want once", n)
	}
}
