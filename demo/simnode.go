// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// waveLabel contains the number of the node's wave.
	waveLabel = "demo.nodegate.dev/wave"

	// healAnnotation on a daemon's pod makes it ready, also on the stuck node.
	healAnnotation = "demo.nodegate.dev/heal"
)

// setUpTaint is the taint with which a kubelet registers if a cloud controller
// must initialize the node. No gate opens before it is removed.
var setUpTaint = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// newNode returns the Node that a kubelet registers, which is not Ready yet.
func newNode(plan *nodePlan, bootID string, now time.Time) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: plan.name, Labels: map[string]string{
			corev1.LabelHostname:   plan.name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64",
			waveLabel:              fmt.Sprint(plan.wave + 1),
		}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Conditions: nodeConditions(false, now, now),
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: plan.name}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: plan.name, SystemUUID: plan.name, BootID: bootID,
				OperatingSystem: "linux", Architecture: "amd64", OSImage: "simulated",
				KernelVersion: "simulated", KubeletVersion: "simulated", ContainerRuntimeVersion: "simulated://1",
			},
		},
	}
	if plan.cloud {
		node.Spec.Taints = []corev1.Taint{setUpTaint}
	}
	return node
}

// nodeConditions returns the conditions that a kubelet reports at every
// heartbeat.
func nodeConditions(ready bool, since, now time.Time) []corev1.NodeCondition {
	condition := func(name corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: name, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(since),
		}
	}
	conditions := []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
	}
	if !ready {
		return append(conditions, condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime status check may not have completed yet"))
	}
	return append(conditions, condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"))
}

// podStatus returns the status that a kubelet reports for a pod with running
// containers.
func podStatus(pod *corev1.Pod, started, now time.Time, ready bool) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: started},
		Conditions: podConditions(started, now, ready),
	}
	for _, container := range pod.Spec.Containers {
		begun := true
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image,
			ContainerID: containerID(pod.UID, container.Name), Ready: ready, Started: &begun,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
		})
	}
	return status
}

func podConditions(started, now time.Time, ready bool) []corev1.PodCondition {
	condition := func(name corev1.PodConditionType, since time.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: name, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}
	}
	conditions := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, started),
		condition(corev1.PodInitialized, started),
		condition(corev1.ContainersReady, now),
		condition(corev1.PodReady, now),
	}
	if !ready {
		for i := range conditions[2:] {
			c := &conditions[2+i]
			c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionFalse, "ContainersNotReady", metav1.NewTime(started)
		}
	}
	return conditions
}

// containerID returns a unique ID for each pod, in the format of a container
// runtime.
func containerID(uid types.UID, container string) string {
	return fmt.Sprintf("containerd://%x", sha256.Sum256([]byte(string(uid)+"/"+container)))
}
