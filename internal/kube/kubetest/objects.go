// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Node returns a ready Node.
func Node(name string, uid types.UID, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, CreationTimestamp: metav1.Unix(1700000000, 0), Labels: map[string]string{corev1.LabelHostname: name},
	}}
	n.Status.NodeInfo.BootID = "boot"
	SetReady(n, corev1.ConditionTrue, "")
	for _, c := range change {
		c(n)
	}
	return n
}

// SetReady replaces the conditions of n by a Ready condition.
func SetReady(n *corev1.Node, status corev1.ConditionStatus, message string) {
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, Message: message,
		LastHeartbeatTime: metav1.Unix(1700000000, 0), LastTransitionTime: metav1.Unix(1700000000, 0),
	}}
}

// Gate returns the metadata of a NodeGate that was created half an hour ago.
func Gate(name string) *v1alpha1.NodeGate {
	return &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Add(-30 * time.Minute)),
	}}
}

// Pod returns a pod in the namespace ns that is bound to a node.
func Pod(name string, uid types.UID, node string, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, CreationTimestamp: metav1.Unix(1700000000, 0)}}
	p.Spec.NodeName = node
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Unix(1700000100, 0)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "b", ContainerID: "2"}, {Name: "a", ContainerID: "1"}}
	return p
}

// DaemonSet returns a DaemonSet in the namespace ns.
func DaemonSet(name string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: "ds", Generation: 1, Labels: map[string]string{"l": "1"},
	}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "x"}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	ds.Status.ObservedGeneration = 1
	return ds
}

// Taint returns a taint.
func Taint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

// Pass advances the clock of a synctest bubble and waits for all goroutines.
func Pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}
