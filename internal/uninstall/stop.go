// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/release"
)

// stopLimit is the timeout for the controller's pods to stop, and then for its Lease to be no longer
// renewed. It does not include the time after which an unchanged Lease has expired.
const stopLimit = 2 * time.Minute

// workloads is the label selector of nodegate's workloads.
const workloads = v1alpha1.AppLabel + "=" + v1alpha1.AppController

// stopController deletes the controller's workloads, and waits until the controller has
// stopped.
func (u *uninstaller) stopController(ctx context.Context) error {
	if err := u.deleteAll(ctx, schema.FromAPIVersionAndKind("apps/v1", "Deployment"), u.Namespace, workloads); err != nil {
		return err
	}
	if u.DryRun != release.DryRunNone {
		return nil
	}
	var limit time.Time // for renewals
	lease := ""
	for {
		if err := u.waitForPods(ctx); err != nil {
			return err
		}
		if limit.IsZero() {
			limit = time.Now().Add(stopLimit)
		}
		running, err := release.Running(ctx, u.core, u.Namespace, func(holder string, lasts time.Duration) {
			first := lease == ""
			lease = fmt.Sprintf("%q holds the Lease %s/%s", holder, u.Namespace, v1alpha1.LeaseName)
			if first {
				u.report("waiting for nodegate to stop: %s, which lasts for %s", lease, lasts)
			}
		})
		switch {
		case err != nil || !running:
			return err
		case !time.Now().Before(limit):
			return fmt.Errorf("nodegate is still running (%s): stop it, and run the command again", lease)
		}
	}
}

// waitForPods waits until none of the controller's pods exists.
func (u *uninstaller) waitForPods(ctx context.Context) error {
	var (
		why, last string
		pods      []corev1.Pod
	)
	err := u.poll(ctx, stopLimit, func(ctx context.Context) (bool, error) {
		list, err := u.core.CoreV1().Pods(u.Namespace).List(ctx, metav1.ListOptions{LabelSelector: workloads})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("listing pods: %w", err)
		}
		pods = list.Items
		why = fmt.Sprintf("pods in namespace %s: %s", u.Namespace, podNames(pods))
		if len(pods) > 0 && why != last {
			u.report("waiting for nodegate to stop: %s", why)
			last = why
		}
		return len(pods) == 0, nil
	})
	switch stuck := terminating(pods); {
	case !wait.Interrupted(err) || ctx.Err() != nil:
		return err
	case len(stuck) > 0:
		return fmt.Errorf("nodegate may still be running (%s): %s", why, u.advice(stuck))
	}
	return fmt.Errorf("nodegate is still running (%s): stop it, and run the command again", why)
}

// terminating returns the pods that are being deleted.
func terminating(pods []corev1.Pod) (out []corev1.Pod) {
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			out = append(out, pods[i])
		}
	}
	return out
}

// advice describes what to do about pods that are being deleted, but do not end. They are not
// ignored: if a machine runs and is only disconnected, its pod may still write.
func (u *uninstaller) advice(stuck []corev1.Pod) string {
	pods, nodes := make([]string, 0, len(stuck)), make([]string, 0, len(stuck))
	for i := range stuck {
		pods, nodes = append(pods, stuck[i].Name), append(nodes, stuck[i].Spec.NodeName)
	}
	return fmt.Sprintf("the kubelet does not report the end of pods that are being deleted (%s). If the machine no longer exists, delete its Node (kubectl delete node %s). "+
		"If the machine is certainly off, delete the pod (kubectl -n %s delete pod %s --force --grace-period=0). Then run the command again",
		strings.Join(pods, ", "), strings.Join(slices.Compact(slices.Sorted(slices.Values(nodes))), " "), u.Namespace, strings.Join(pods, " "))
}

// podNames returns the names of pods and their nodes.
func podNames(pods []corev1.Pod) string {
	names := make([]string, 0, len(pods))
	for i := range pods {
		name := pods[i].Name
		if node := pods[i].Spec.NodeName; node != "" {
			name += " on node " + node
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
