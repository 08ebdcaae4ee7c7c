// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/scene"
)

var opening = Figure{
	ID: "P1", Title: "Daemon ready → taint gone, 10 nodes a second",
	Measure:  measureOpening,
	Profiled: profiledOpening,
}

func measureOpening(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	rounds, err := e.measurePaced(ctx)
	if err != nil {
		return r, err
	}
	r.Rows = []report.Row{
		report.Compare("p50", "ms", rounds, latency, report.Percentile(50), report.TimesLimit(1.15)),
		report.Compare("p99", "ms", rounds, latency, report.Percentile(99), report.TimesLimit(1.5)),
	}
	r.Notes = []string{
		fmt.Sprintf("%d nodes a turn, which also close again in it (P10). From when the observer's watch of pods shows the daemon ready to when its watch of nodes shows the taint gone.", e.Paced),
		"The daemon's status is written through the API server, as a kubelet writes it.",
	}
	return r, nil
}

func profiledOpening(e *Env) Profiled {
	return Profiled{
		Name: "opening",
		For:  time.Duration(1+e.Paced/rate) * time.Second, Nodes: e.Paced,
		Turn: func(ctx context.Context, e *Env, _ *Subject) error {
			_, err := e.open(ctx)
			return err
		},
	}
}

// prepare configures the gate, and grows the fleet to at least this size.
func (e *Env) prepare(ctx context.Context, nodes int, gate map[string]any) error {
	if err := e.SetGate(ctx, gate); err != nil {
		return err
	}
	if len(e.Fleet.Nodes()) < nodes {
		return e.Fleet.Resize(ctx, nodes)
	}
	return nil
}

// latencies waits until each of these nodes has reached the expected state, and
// returns the latencies in milliseconds, from the corresponding change of the
// node's pod.
func (e *Env) latencies(ctx context.Context, nodes []string, pod, node observer.Aspect) (report.Sample, error) {
	if err := e.Observer.AwaitSeen(ctx, node, len(nodes)); err != nil {
		return nil, err
	}
	from, to := e.Observer.Seen(pod), e.Observer.Seen(node)
	sample := report.Sample{}
	for _, name := range nodes {
		start, end := from[scene.PodName(name)], to[name]
		if start.IsZero() || end.IsZero() {
			return nil, fmt.Errorf("measuring latencies: %s was not seen %s, or its pod not %s", name, node, pod)
		}
		sample.Add(latency, milliseconds(end.Sub(start)))
	}
	return sample, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
