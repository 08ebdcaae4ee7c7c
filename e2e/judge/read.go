// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nodegate/nodegate/testcluster"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Connect returns a client of a cluster's etcd. The caller closes it.
func Connect(c *testcluster.Cluster) (*clientv3.Client, error) {
	endpoint, credentials, err := c.Etcd()
	if err != nil {
		return nil, err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: credentials, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return etcd, nil
}

// Read returns the history of a run since revision from, merged from etcd and the
// audit log. If from is 1, it reads everything.
func Read(ctx context.Context, etcd *clientv3.Client, auditLog io.Reader, from int64) (*History, error) {
	versions, to, err := ReadEtcd(ctx, etcd, from)
	if err != nil {
		return nil, err
	}
	end := time.Now()
	writes, err := ReadAudit(auditLog)
	if err != nil {
		return nil, err
	}
	return NewHistory(from, to, end, versions, writes), nil
}
