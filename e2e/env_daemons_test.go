// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// daemonSet creates a DaemonSet that tolerates all taints.
func (e *env) daemonSet(name string) *appsv1.DaemonSet {
	e.Helper()
	return e.daemonIn(daemonNamespace, name, nil)
}

// daemonIn creates a DaemonSet that tolerates all taints. Its labels are these and app,
// which is its name.
func (e *env) daemonIn(namespace, name string, labels map[string]string) *appsv1.DaemonSet {
	e.Helper()
	all := map[string]string{"app": name}
	maps.Copy(all, labels)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: all},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: all},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: all},
				Spec: corev1.PodSpec{
					Containers:  []corev1.Container{{Name: "daemon", Image: "daemon"}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
	e.must(e.admin.Create(e.Context(), ds))
	created := ds.DeepCopy()
	ds.Status.ObservedGeneration = ds.Generation // no rollout is in progress
	// A patch, because a DaemonSet controller that runs writes the status as well.
	e.must(e.admin.Status().Patch(e.Context(), ds, client.MergeFrom(created)))
	return ds
}

func (e *env) deleteDaemonSets(ctx context.Context) error {
	return e.admin.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace(daemonNamespace))
}

// agent creates the gate that most tests use. It opens when the DaemonSet of the same name
// is ready on a node.
func (e *env) agent() *appsv1.DaemonSet {
	e.Helper()
	ds := e.daemonSet("agent")
	e.declare(newGate("agent", keyA, byDaemonSet("agent")))
	return ds
}

// openNode returns a node on which the gate of the DaemonSet's name has opened, and its
// daemon's pod.
func (e *env) openNode(name string, ds *appsv1.DaemonSet) (*kubelet, *corev1.Pod) {
	e.Helper()
	k := e.kubelet(name)
	k.register()
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes(ds.Name, isOpen, keyA)
	return k, pod
}

// daemonPod creates the DaemonSet's pod on the node, not ready.
func (k *kubelet) daemonPod(ds *appsv1.DaemonSet, change ...func(*corev1.Pod)) *corev1.Pod {
	k.Helper()
	pod := newDaemonPod(ds, k.name)
	for _, f := range change {
		f(pod)
	}
	k.must(k.admin.Create(k.Context(), pod))
	return pod
}

// newDaemonPod returns a pod as the DaemonSet controller creates it for a node.
func newDaemonPod(ds *appsv1.DaemonSet, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ds.Namespace, Name: ds.Name + "-" + string(uuid.NewUUID())[:8], Labels: daemonLabels(ds),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *ds.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = node
	return pod
}

// daemonLabels returns the labels that the DaemonSet controller gives to pods.
func daemonLabels(ds *appsv1.DaemonSet) map[string]string {
	labels := maps.Clone(ds.Spec.Template.Labels)
	labels[appsv1.ControllerRevisionHashLabelKey] = "5d9c7b6f9"
	labels[v1alpha1.DaemonPodLabel] = "1"
	return labels
}

// run reports that the pod runs in new containers, ready or not.
func (k *kubelet) run(pod *corev1.Pod, isReady bool) {
	k.Helper()
	k.setReady(pod, isReady, containersOf(k.boot)+string(uuid.NewUUID()))
}

// setReady reports that the pod runs in this container, ready or not.
func (k *kubelet) setReady(pod *corev1.Pod, isReady bool, containerID string) {
	k.Helper()
	pod.Status = daemonStatus(isReady, containerID)
	k.must(k.admin.Status().Update(k.Context(), pod))
}

func newContainerID() string { return "containerd://" + string(uuid.NewUUID()) }

// containersOf returns the prefix of the IDs of containers that a kubelet started in this boot,
// so that what runs on a node knows the boot of its container without reading the Node.
func containersOf(boot string) string { return "containerd://" + boot + "-" }

// daemonStatus returns the status of a daemon's pod that runs in this container.
func daemonStatus(isReady bool, containerID string) corev1.PodStatus {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "daemon", Image: "daemon", ContainerID: containerID, Ready: isReady}},
	}
}

// container returns the ID of the pod's container, or "".
func container(pod *corev1.Pod) string {
	if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
		return ""
	}
	return pod.Status.ContainerStatuses[0].ContainerID
}

// isReady reports whether the pod's status is Ready, in this boot or an earlier one.
func isReady(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
