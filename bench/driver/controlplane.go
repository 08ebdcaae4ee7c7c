// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// A ControlPlane is a running control plane with clients.
type ControlPlane struct {
	Cluster *testcluster.Cluster
	Applier *testbed.Applier
	Driver  *Driver

	closers []func() error
}

// quota is etcd's storage quota in bytes. Resetting a fleet many times exceeds the default
// of 2 GiB.
const quota = 8 << 30

// StartControlPlane starts a control plane. The caller must close it.
func StartControlPlane(ctx context.Context, o testcluster.Options) (_ *ControlPlane, err error) {
	p := &ControlPlane{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	o.ExtraArgs = map[testcluster.Component][]string{testcluster.Etcd: {fmt.Sprintf("--quota-backend-bytes=%d", quota)}}
	if p.Cluster, err = testcluster.Start(ctx, o); err != nil {
		return nil, err
	}
	p.OnClose(p.Cluster.Stop)
	if p.Applier, err = testbed.NewApplier(p.Cluster.Admin()); err != nil {
		return nil, err
	}
	if p.Driver, err = New(ctx, p.Cluster); err != nil {
		return nil, err
	}
	p.OnClose(p.Driver.Close)
	return p, nil
}

// OnClose adds something that Close stops.
func (p *ControlPlane) OnClose(f func() error) { p.closers = append(p.closers, f) }

// Close stops everything, in reverse order.
func (p *ControlPlane) Close() error {
	var errs []error
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer())
	}
	p.closers = nil
	return errors.Join(errs...)
}
