// SPDX-License-Identifier: Apache-2.0

// Package driver creates the benchmark's fleet and its events. It simulates all
// components except nodegate: nodes that register, kubelets that report, a
// controller that creates pods. Fast sequences of events are written directly to
// etcd, as if by other API servers, so that the driver does not limit what is
// measured.
package driver

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A Driver writes to one cluster.
type Driver struct {
	client kubernetes.Interface
	etcd   *clientv3.Client

	revision int64 // etcd's, when it was last compacted
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

// Close ends the connection to etcd.
func (d *Driver) Close() error {
	if err := d.etcd.Close(); err != nil {
		return fmt.Errorf("closing the connection to etcd: %w", err)
	}
	return nil
}
