// SPDX-License-Identifier: Apache-2.0

// Package simnode simulates nodes without KWOK, so that a test controls every write. It
// makes the writes of a node's kubelet, but runs no containers.
package simnode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Node is a simulated node. Only one goroutine may report its conditions at a time.
type Node struct {
	Name string
	// BootID is the boot ID that the kubelet reports. Change it to reboot the node.
	BootID string

	kubelet kubernetes.Interface
	// reported are the conditions that the API server has confirmed.
	reported map[corev1.NodeConditionType]corev1.NodeCondition
}

// New returns a node that writes with the given client, which has the permissions of the
// node's kubelet.
func New(kubelet kubernetes.Interface, name, bootID string) *Node {
	return &Node{Name: name, BootID: bootID, kubelet: kubelet, reported: make(map[corev1.NodeConditionType]corev1.NodeCondition)}
}

// Conditions are the statuses of conditions that are reported together.
type Conditions map[corev1.NodeConditionType]corev1.ConditionStatus

// Register creates the Node with these conditions and further changes.
func (n *Node) Register(ctx context.Context, c Conditions, change ...func(*corev1.Node)) (*corev1.Node, error) {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	clear(n.reported)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources, Conditions: n.conditions(c),
			NodeInfo: corev1.NodeSystemInfo{BootID: n.BootID, OperatingSystem: "linux", KubeletVersion: "simulated"},
		},
	}
	for _, f := range change {
		f(node)
	}
	created, err := n.kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	n.confirm(node.Status.Conditions, err)
	return created, err
}

// Report reports conditions and, if Ready is one of them and not Unknown, the boot ID.
// Only the control plane sets Ready to Unknown, and it does not know the boot ID.
func (n *Node) Report(ctx context.Context, c Conditions) error {
	return n.report(ctx, n.conditions(c))
}

// ReportShutdown reports that the node is shutting down.
func (n *Node) ReportShutdown(ctx context.Context) error {
	conditions := n.conditions(Conditions{corev1.NodeReady: corev1.ConditionFalse})
	conditions[0].Reason, conditions[0].Message = "KubeletNotReady", "node is shutting down"
	return n.report(ctx, conditions)
}

// Renew renews the node's Lease, and creates it if it does not exist.
func (n *Node) Renew(ctx context.Context) error {
	leases, now := n.kubelet.CoordinationV1().Leases(corev1.NamespaceNodeLease), metav1.NowMicro()
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("encoding the Lease of node %s: %w", n.Name, err)
	}
	_, err = leases.Patch(ctx, n.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &n.Name, &now
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return err
}

func (n *Node) report(ctx context.Context, conditions []corev1.NodeCondition) error {
	status := map[string]any{"conditions": conditions}
	for _, c := range conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown {
			status["nodeInfo"] = map[string]string{"bootID": n.BootID}
		}
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding the status of node %s: %w", n.Name, err)
	}
	_, err = n.kubelet.CoreV1().Nodes().PatchStatus(ctx, n.Name, body)
	n.confirm(conditions, err)
	return err
}

// confirm stores conditions, given the error of their report. If it is not nil, the
// report may have arrived or not, so the next one counts as a transition.
func (n *Node) confirm(conditions []corev1.NodeCondition, err error) {
	for _, c := range conditions {
		if n.reported[c.Type] = c; err != nil {
			delete(n.reported, c.Type)
		}
	}
}

// conditions returns conditions, sorted by type. The transition time of a condition
// whose status has not changed stays the same.
func (n *Node) conditions(c Conditions) []corev1.NodeCondition {
	var all []corev1.NodeCondition
	for _, name := range slices.Sorted(maps.Keys(c)) {
		now := metav1.Now()
		next := corev1.NodeCondition{
			Type: name, Status: c[name], LastHeartbeatTime: now, LastTransitionTime: now,
			Reason: "Simulated", Message: "reported by a simulated node", // a merge keeps omitted fields
		}
		if last, known := n.reported[name]; known && last.Status == next.Status {
			next.LastTransitionTime = last.LastTransitionTime
		}
		all = append(all, next)
	}
	return all
}

// DaemonPod returns the pod that the DaemonSet controller creates for a node, bound to
// the node.
func DaemonPod(ds *appsv1.DaemonSet, node, name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ds.Namespace, Name: name, Labels: maps.Clone(ds.Spec.Template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *ds.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey], pod.Labels["pod-template-generation"] = "1", "1"
	pod.Spec.NodeName = node
	return pod
}

// ReportPod reports that the pod's containers are running, ready or not. The container
// IDs are derived from id. It stores the status in the pod. If the pod has a UID, the
// report is rejected when the name belongs to another pod.
func (n *Node) ReportPod(ctx context.Context, pod *corev1.Pod, id string, ready bool, change ...func(*corev1.PodStatus)) error {
	pod.Status = podStatus(pod, id, ready)
	for _, f := range change {
		f(&pod.Status)
	}
	patch := map[string]any{"status": pod.Status}
	if pod.UID != "" {
		patch["metadata"] = map[string]any{"uid": pod.UID}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding the status of pod %s: %w", pod.Name, err)
	}
	_, err = n.kubelet.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil { // as in confirm
		pod.Status = corev1.PodStatus{}
	}
	return err
}

func podStatus(pod *corev1.Pod, id string, ready bool) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: pod.Status.StartTime}
	if status.StartTime == nil {
		status.StartTime = new(metav1.Now())
	}
	isReady := corev1.ConditionFalse
	if ready {
		isReady = corev1.ConditionTrue
	}
	since := metav1.Now()
	if readyCondition(pod).Status == isReady {
		since = readyCondition(pod).LastTransitionTime
	}
	status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: *status.StartTime},
		{Type: corev1.ContainersReady, Status: isReady, LastTransitionTime: since},
		{Type: corev1.PodReady, Status: isReady, LastTransitionTime: since},
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		next := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + id + "-" + c.Name, Ready: ready,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}
		if last := pod.Status.ContainerStatuses; i < len(last) && last[i].ContainerID == next.ContainerID {
			next.State = last[i].State
		}
		status.ContainerStatuses = append(status.ContainerStatuses, next)
	}
	return status
}

// readyCondition returns the pod's condition Ready; it is empty if the pod has none.
func readyCondition(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c
		}
	}
	return corev1.PodCondition{}
}
