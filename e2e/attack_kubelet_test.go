// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A node tries to open its gates with its own credentials.
func TestNodeThatLies(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("malicious")
	forged := `{"state":"Open","reason":"SignalsHold","taint":"` + keyA + `:NoSchedule","source":"crd"}`
	born := k.register(func(n *corev1.Node) {
		n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "agent": forged}
	})
	e.must(k.is("agent", isClosed, keyA))
	done := e.watchAll(agrees)

	record := fmt.Sprintf(`{"metadata":{"annotations":{"%sagent":%q}}}`, v1alpha1.RecordAnnotationPrefix, forged)
	for what, try := range map[string]func() error{
		"its taints":                func() error { return k.patchAsKubelet(`{"spec":{"taints":null}}`, false) },
		"its record":                func() error { return k.patchAsKubelet(record, false) },
		"its record, by its status": func() error { return k.patchAsKubelet(record, true) },
		"no record": func() error {
			return k.patchAsKubelet(`{"metadata":{"annotations":{"`+v1alpha1.RecordAnnotationPrefix+`agent":null}}}`, true)
		},
		"a record among many": func() error { return k.patchAsKubelet(`{"metadata":{"annotations":{`+numbered(1100)+`}}}`, false) },
		"the daemon's owner": func() error {
			return k.api.Create(t.Context(), k.mirrorPod(ds.Labels, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: new(true)}))
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: the API server returned %v, want a rejection", what, err)
		}
	}
	mirror := k.mirrorPod(ds.Labels, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: k.name, UID: born.UID, Controller: new(true)})
	e.must(k.api.Create(t.Context(), mirror))
	k.run(mirror, true)
	k.report(corev1.ConditionTrue, "kubelet is ready")
	e.podsObserved(ds)
	e.settled()
	e.must(k.is("agent", isClosed, keyA))
	k.wrote(0)
	k.run(k.daemonPod(ds), true)
	k.becomes("agent", isOpen, keyA)
	k.wrote(1)
	done()
}

// numbered returns n annotations.
func numbered(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"example.com/a%d":""`, i)
	}
	return strings.Join(all, ",")
}

func (k *kubelet) mirrorPod(labels map[string]string, owner metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: daemonNamespace, Name: "static-" + k.name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner},
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
		},
		Spec: corev1.PodSpec{NodeName: k.name, Containers: []corev1.Container{{Name: "daemon", Image: "daemon"}}},
	}
}

// A kubelet with much metadata or many taints can write its Node, and opening a gate there
// changes no taint of another writer.
func TestHeavyNodesHeartbeat(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	for name, fill := range map[string]func(*corev1.Node){
		"annotations": func(n *corev1.Node) { n.Annotations = largeMap(1000, 200) },
		"too-many":    func(n *corev1.Node) { n.Annotations = largeMap(3000, 50) },
		"labels":      func(n *corev1.Node) { n.Labels = largeMap(500, 60) },
		"taints":      func(n *corev1.Node) { n.Spec.Taints = foreignTaints(100, corev1.TaintEffectNoSchedule) },
	} {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			k := e.kubelet("large-" + name)
			born := k.register(fill)
			if !hasTaint(born, keyA) {
				t.Errorf("the Node was created with taints %s, want %s", keys(born), keyA)
			}
			for range 5 {
				k.report(corev1.ConditionTrue, "")
			}
			e.must(k.patchAsKubelet(`{"metadata":{"labels":{"mine":"1"}}}`, false))
			if name == "too-many" {
				return // nodegate does not write Nodes with so many annotations
			}
			k.label("ready")
			k.becomes("agent", isOpen, keyA)
			if before, after := without(born.Spec.Taints, keyA), k.node().Spec.Taints; fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("foreign taints were %v and are %v", before, after)
			}
			k.wrote(1)
		})
	}
}

// largeMap returns n labels or annotations with values of the given size.
func largeMap(n, size int) map[string]string {
	all := make(map[string]string, n)
	for i := range n {
		all[fmt.Sprintf("example.com/a%d", i)] = strings.Repeat("x", size)
	}
	return all
}

// foreignTaints returns n taints of other writers.
func foreignTaints(n int, effect corev1.TaintEffect) []corev1.Taint {
	taints := make([]corev1.Taint, n)
	for i := range taints {
		taints[i] = corev1.Taint{Key: fmt.Sprintf("foreign-%d", i), Effect: effect}
	}
	return taints
}

// A node is repeatedly deleted and re-created under its name, while the old daemon pod
// remains.
func TestNodeThatRegistersAgainAndAgain(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k, _ := e.openNode("n1", ds)
	e.waitNextSecond() // creation times have whole seconds

	done := e.watchAll(agrees)
	for range 20 {
		e.must(e.admin.Delete(t.Context(), k.node()))
		if born := k.register(); !hasTaint(born, keyA) {
			t.Fatalf("the Node was created with taints %s, want %s", keys(born), keyA)
		}
	}
	e.settled()
	e.must(k.is("agent", isClosed, keyA))
	k.run(k.daemonPod(ds), true)
	k.becomes("agent", isOpen, keyA)
	k.wrote(1)
	done()
}
