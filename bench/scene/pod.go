// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod returns the daemon's pod on a node as the DaemonSet's controller creates
// it.
func Pod(ds *appsv1.DaemonSet, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(node), GenerateName: ds.Name + "-", Namespace: ds.Namespace,
			Labels:          map[string]string{"controller-revision-hash": "5d9c7b6f9", "pod-template-generation": "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *ds.Spec.Template.Spec.DeepCopy(),
	}
	for key, value := range ds.Spec.Template.Labels {
		pod.Labels[key] = value
	}
	pod.Spec.NodeName = node
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}}
	return pod
}

// PodStatus returns the status of the daemon's pod as its kubelet reports it:
// running, and ready or not. The container stays the same when its readiness
// changes.
func PodStatus(pod *corev1.Pod, ready bool, now time.Time) corev1.PodStatus {
	start, at := metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "10.1.2.3", PodIP: "10.1.2.3", StartTime: &start, QOSClass: corev1.PodQOSBestEffort,
		HostIPs: []corev1.HostIP{{IP: "10.1.2.3"}}, PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: start},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: start},
			{Type: corev1.PodReady, Status: status, LastTransitionTime: at},
			{Type: corev1.ContainersReady, Status: status, LastTransitionTime: at},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: start},
		},
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image + "@sha256:0a", Ready: ready, Started: &ready,
			ContainerID: fmt.Sprintf("containerd://%x", pod.Spec.NodeName+container.Name),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
		})
	}
	return s
}
