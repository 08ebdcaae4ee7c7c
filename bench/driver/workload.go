// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/bench/scene"
)

// workload is the value of the label "app" of pods that wait for their node.
const workload = "workload"

// WorkloadName is the name of the pod that waits for a node.
func WorkloadName(node string) string { return workload + "-" + node }

// AddWorkload creates a pod that can run only on this node, and does not tolerate
// the gate's taint.
func (d *Driver) AddWorkload(ctx context.Context, node string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: WorkloadName(node), Namespace: scene.Namespace, Labels: map[string]string{"app": workload}},
		Spec: corev1.PodSpec{
			NodeSelector:                 map[string]string{corev1.LabelHostname: node},
			AutomountServiceAccountToken: ptr.To(false),
			Containers:                   []corev1.Container{{Name: workload, Image: "example.com/workload:1"}},
		},
	}
	if _, err := d.client.CoreV1().Pods(scene.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}

// RemoveWorkloads deletes all workload pods immediately, because there is no
// kubelet to do it.
func (d *Driver) RemoveWorkloads(ctx context.Context) error {
	err := d.client.CoreV1().Pods(scene.Namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{LabelSelector: "app=" + workload})
	if err != nil {
		return fmt.Errorf("deleting workload pods: %w", err)
	}
	return nil
}
