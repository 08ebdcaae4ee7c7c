// SPDX-License-Identifier: Apache-2.0

// Package driver creates the benchmark's fleet and its events. It simulates everything
// except nodegate: nodes that register, kubelets that report, and the DaemonSet
// controller. Fast series of events are written directly to etcd, as if by other API
// servers, so that the driver does not limit what is measured.
package driver

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A Driver writes to one cluster.
type Driver struct {
	client kubernetes.Interface
	etcd   *clientv3.Client

	revision int64 // etcd's at the last compaction
}

// New connects to the cluster with all permissions.
func New(ctx context.Context, c *testcluster.Cluster) (*Driver, error) {
	config := c.Admin()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	endpoint, credentials, err := c.Etcd()
	if err != nil {
		return nil, err
	}
	etcd, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, TLS: credentials, DialTimeout: await.Silence, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return &Driver{client: client, etcd: etcd}, nil
}

// Client returns the driver's client for the API server.
func (d *Driver) Client() kubernetes.Interface { return d.client }

// Close closes the connection to etcd.
func (d *Driver) Close() error {
	if err := d.etcd.Close(); err != nil {
		return fmt.Errorf("closing the connection to etcd: %w", err)
	}
	return nil
}

// Nodes returns all nodes of the cluster.
func (d *Driver) Nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// workload is the value of the label "app" of workload pods.
const workload = "workload"

// WorkloadName returns the name of a node's workload pod.
func WorkloadName(node string) string { return workload + "-" + node }

// AddWorkload creates a pod that can run only on this node and does not tolerate the
// gate's taint.
func (d *Driver) AddWorkload(ctx context.Context, node string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: WorkloadName(node), Namespace: fixture.Namespace, Labels: map[string]string{"app": workload}},
		Spec: corev1.PodSpec{
			NodeSelector:                 map[string]string{corev1.LabelHostname: node},
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: workload, Image: "example.com/workload:1"}},
		},
	}
	if _, err := d.client.CoreV1().Pods(fixture.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}

// RemoveWorkloads deletes all workload pods without a grace period, because there are
// no kubelets that would confirm the deletion.
func (d *Driver) RemoveWorkloads(ctx context.Context) error {
	err := d.client.CoreV1().Pods(fixture.Namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{LabelSelector: "app=" + workload})
	if err != nil {
		return fmt.Errorf("deleting workload pods: %w", err)
	}
	return nil
}
