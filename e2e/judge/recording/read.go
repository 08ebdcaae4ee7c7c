// SPDX-License-Identifier: Apache-2.0

// Package recording reads what a cluster has recorded of a run: every revision that etcd holds, with
// the requests in the audit log that wrote it. A cluster with ClusterOptions records all that the
// judge needs.
package recording

import (
	"context"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster"
)

// ClusterOptions returns the options of a cluster whose runs can be judged.
func ClusterOptions(progress io.Writer, components ...testcluster.Component) testcluster.Options {
	return testcluster.Options{
		Components: components,
		ExtraArgs:  map[testcluster.Component][]string{testcluster.APIServer: keepRevisions},
		Audit:      true, AuditPolicy: auditPolicy, Progress: progress,
	}
}

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

// Position is a point in a run: etcd's revision, and the length of the audit log. The
// zero value is the beginning.
type Position struct{ Revision, Logged int64 }

// Now returns the current position.
func Now(ctx context.Context, etcd *clientv3.Client, auditLog string) (Position, error) {
	revision, err := currentRevision(ctx, etcd)
	if err != nil {
		return Position{}, err
	}
	logged, err := testcluster.AuditLength(auditLog)
	return Position{revision, logged}, err
}

// Read returns the history of a run since a position, merged from etcd and the audit
// log.
func Read(ctx context.Context, etcd *clientv3.Client, auditLog string, since Position) (*revisions.History, error) {
	versions, to, end, err := readEtcd(ctx, etcd, since.Revision)
	if err != nil {
		return nil, err
	}
	writes, requests, err := readAudit(auditLog, since.Logged)
	if err != nil {
		return nil, err
	}
	history := revisions.New(max(since.Revision, 1), to, end, versions, writes)
	history.Requests = requests
	return history, nil
}
