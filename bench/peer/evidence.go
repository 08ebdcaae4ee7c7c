// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/observer"
)

// evidence is what a program waits for before it removes its taint from a node.
type evidence struct {
	// one writes the evidence of a node, and all that of the first nodes, or removes it.
	one func(ctx context.Context, node string) error
	all func(ctx context.Context, count int, exists bool) error
	// event is how the observer sees it.
	event observer.Event
}

// daemonReady is the ready pod of the benchmark's DaemonSet.
func (e *bench) daemonReady() *evidence {
	return &evidence{
		one: func(ctx context.Context, node string) error { return e.Fleet.ReportOne(ctx, node, true) },
		all: func(ctx context.Context, count int, exists bool) error {
			_, err := e.Fleet.Report(ctx, count, exists)
			return err
		},
		event: observer.Event{State: observer.Ready, Object: fixture.PodName},
	}
}

// driverRegistered is the registration of a CSI driver.
func driverRegistered(csi *driver.CSINodes) *evidence {
	return &evidence{
		one: csi.RegisterOne,
		all: func(ctx context.Context, _ int, exists bool) error {
			_, err := csi.Register(ctx, exists)
			return err
		},
		event: observer.Event{State: observer.Registered, Object: observer.CSINode},
	}
}
