// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"context"
	"fmt"
)

// An Event occurs when an object of a node enters a state.
type Event struct {
	State State
	// Object returns the name under which the object is observed.
	Object func(node string) string
}

// Node is the Event.Object of the Node itself.
func Node(node string) string { return node }

// Latencies waits until an event has occurred for each node since the last reset, and returns
// the times in milliseconds since another event.
func (o *Observer) Latencies(ctx context.Context, nodes []string, from, to Event) ([]float64, error) {
	if err := o.AwaitSeen(ctx, to.State, len(nodes)); err != nil {
		return nil, err
	}
	var all []float64
	begun, ended := o.Seen(from.State), o.Seen(to.State)
	for _, node := range nodes {
		start, end := begun[from.Object(node)], ended[to.Object(node)]
		if start.IsZero() || end.IsZero() {
			return nil, fmt.Errorf("measuring latencies: %s was not observed to be %s, or %s not to be %s",
				from.Object(node), from.State, to.Object(node), to.State)
		}
		all = append(all, 1e3*end.Sub(start).Seconds())
	}
	return all, nil
}
