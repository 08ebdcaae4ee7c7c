// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

const (
	born    faultproxy.Fault = "Node created while nodegate is down"
	waiting faultproxy.Fault = "pod that waits for a Node"
)

// pendingPods is the number of pods that wait for a node and tolerate every taint except gates' taints.
const pendingPods = 50

// births creates Nodes while nodegate is down and the API server is killed repeatedly,
// with a real scheduler and pending pods.
func births(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx)
	if err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		return fmt.Errorf("stopping nodegate: %w", err)
	}
	// Nothing may be bound to the nodes of the fleet, which are open.
	if err := s.fleet.each(func(n *node) error { return n.kube.CoreV1().Nodes().Delete(ctx, n.Name, deleteNow) }); err != nil {
		return err
	}
	if err := s.createPendingPods(ctx); err != nil {
		return err
	}
	created, err := s.createNodes(ctx, d)
	if err != nil {
		return err
	}
	if err := s.schedulerBinds(ctx); err != nil {
		return err
	}
	if err := s.nothingBound(ctx); err != nil {
		return err
	}
	s.report.note("%d Nodes were created while nodegate was down; %d pending pods are still pending, a pod that tolerates every taint is bound", created, pendingPods)
	if err := s.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, deleteNow, metav1.ListOptions{LabelSelector: "app in (pending, tolerant)"}); err != nil {
		return fmt.Errorf("deleting pods: %w", err)
	}
	if err := s.deleteNodes(ctx); err != nil {
		return err
	}
	_, err = s.start(ctx)
	return err
}

// deleteNodes deletes all Nodes in batches, because the API server aborts requests that
// take a minute.
func (s *site) deleteNodes(ctx context.Context) error {
	for {
		left, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = s.kube.CoreV1().Nodes().DeleteCollection(ctx, deleteNow, metav1.ListOptions{Limit: 500})
		}
		if err != nil {
			return fmt.Errorf("deleting nodes: %w", err)
		}
		if len(left.Items) == 0 {
			return nil
		}
	}
}

func (s *site) createPendingPods(ctx context.Context) error {
	for i := range pendingPods {
		s.report.inject(waiting)
		err := s.createPod(ctx, fmt.Sprint("pending-", i), "pending",
			corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: foreign + "first", Operator: corev1.TolerationOpExists})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *site) createPod(ctx context.Context, name, app string, tolerations ...corev1.Toleration) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: app, Image: app}}, Tolerations: tolerations},
	}
	if _, err := s.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a pod: %w", err)
	}
	return nil
}

// schedulerBinds creates a pod that tolerates every taint, and waits until it is bound. If the
// scheduler did not bind pods, no pending pod would be bound either.
func (s *site) schedulerBinds(ctx context.Context) error {
	const name = "tolerant"
	if err := s.createPod(ctx, name, name, corev1.Toleration{Operator: corev1.TolerationOpExists}); err != nil {
		return err
	}
	return await.Until(ctx, "binding of a pod that tolerates every taint", func(ctx context.Context) error {
		pod, err := s.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return fmt.Errorf("reading the pod: %w", err)
		case pod.Spec.NodeName == "":
			return fmt.Errorf("pod %s is not bound: %v", name, pod.Status.Conditions)
		}
		return nil
	})
}

// createNodes creates Nodes for the duration d, as kubelets, while it kills the API
// server, and returns their number.
func (s *site) createNodes(ctx context.Context, d time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var created atomic.Int64
	var group sync.WaitGroup
	for w := range 2 * writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("born-%d-%d", w, i)
				if _, err := simnode.New(s.kube, name, name).Register(ctx, simnode.Conditions{ready: yes}, inPoolA); err == nil {
					s.report.inject(born)
					created.Add(1)
				}
			}
		})
	}
	var err error
	for err == nil && await.Pause(ctx, d/6) == nil {
		err = s.killAPIServer(context.WithoutCancel(ctx))
	}
	cancel()
	group.Wait()
	return created.Load(), err
}

func inPoolA(object *corev1.Node) { object.Labels[pool] = "a" }

// nothingBound verifies that no pending pod was bound.
func (s *site) nothingBound(ctx context.Context) error {
	pods, err := s.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=pending"})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if node := pods.Items[i].Spec.NodeName; node != "" {
			return fmt.Errorf("pod %s was bound to %s, on which all gates are closed", pods.Items[i].Name, node)
		}
	}
	if len(pods.Items) != pendingPods {
		return fmt.Errorf("there are %d pending pods, want %d", len(pods.Items), pendingPods)
	}
	return nil
}
