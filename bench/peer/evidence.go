// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/observer"
)

// evidence is what a program waits for before it removes its taint from a node.
type evidence struct {
	// one writes the evidence of a node, and all that of the first nodes, or removes it.
	one func(ctx context.Context, node string) error
	all func(ctx context.Context, count int, exists bool) error
	// The observer sees it when the object of a node is in a state.
	state  observer.State
	object func(node string) string
}

// daemonReady is the ready pod of the benchmark's DaemonSet.
func (e *bench) daemonReady() *evidence {
	return &evidence{
		one: func(ctx context.Context, node string) error { return e.Fleet.ReportOne(ctx, node, true) },
		all: func(ctx context.Context, count int, exists bool) error {
			_, err := e.Fleet.Report(ctx, count, exists)
			return err
		},
		state: observer.Ready, object: fixture.PodName,
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
		state: observer.Registered, object: observer.CSINode,
	}
}

// latencies returns the time from each node's evidence to its opening, in ms.
func (v *evidence) latencies(ctx context.Context, o *observer.Observer, nodes []string) ([]float64, error) {
	if err := o.AwaitSeen(ctx, observer.Open, len(nodes)); err != nil {
		return nil, err
	}
	var all []float64
	from, to := o.Seen(v.state), o.Seen(observer.Open)
	for _, node := range nodes {
		start, end := from[v.object(node)], to[node]
		if start.IsZero() || end.IsZero() {
			return nil, fmt.Errorf("measuring latencies: node %s was not observed to be open, or %s not to be %s", node, v.object(node), v.state)
		}
		all = append(all, 1e3*end.Sub(start).Seconds())
	}
	return all, nil
}
