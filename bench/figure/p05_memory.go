// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/bench/fakeapi"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/steady"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
)

var memory = Figure{ID: "P5", Title: "Peak resident memory, initial list included", Measure: measureMemory}

// A FleetSize is the size of a steady fleet.
type FleetSize struct {
	// Nodes is the number of nodes, with three gate pods each. Others is the number of
	// other pods.
	Nodes, Others int
	// AtMost is the goal for nodegate's peak, in MiB; 0 for none.
	AtMost float64
}

// goal returns the goal, or nil if there is none.
func (s FleetSize) goal() *report.Goal {
	if s.AtMost == 0 {
		return nil
	}
	return report.AtMost(s.AtMost)
}

const (
	// reportTime is the time for which nodes report after nodegate has reconciled them.
	reportTime = 5 * time.Second

	mebibyte = 1 << 20

	// leastObject is the minimum size of realistic Nodes and pods, in bytes.
	leastObject = 2 << 10
)

func measureMemory(ctx context.Context, e *Env) (r report.Result, err error) {
	f, err := steady.NewTwoGates(ctx, e.Installation.Program)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	node, pod := f.Node(0).Size(), f.Pod(0, 0).Size()
	if node < leastObject || pod < leastObject {
		return r, fmt.Errorf("a Node of %d bytes and a pod of %d bytes are smaller than real ones", node, pod)
	}
	e.Say("  %d nodes, simulated", e.Replayed.Nodes)
	replayed, requests, err := measureReplayed(ctx, f, e.Replayed, e.Starts)
	if err != nil {
		return r, err
	}
	e.Say("  %d nodes and %d other pods, in etcd", e.Stored.Nodes, e.Stored.Others)
	stored, err := measureStored(ctx, f, e.Stored, e.Starts)
	if err != nil {
		return r, err
	}
	r.Rows = []report.Row{stored.row(e.Stored), replayed.row(e.Replayed)}
	r.Notes = []string{
		fmt.Sprintf("VmHWM of nodegate's process, run as in production: with its own ServiceAccount, leader election, two gates and 3 gate pods per node. Each was started %d times. A Node with 40 labels has %.1f KB in protobuf, a pod %.1f KB. All nodes are open. When all are reconciled, each reports once per minute for %s.",
			e.Starts, float64(node)/1e3, float64(pod)/1e3, reportTime),
		fmt.Sprintf("%d nodes: objects in etcd, a whole control plane without an audit log. %s", e.Stored.Nodes, stored.note()),
		fmt.Sprintf("%d nodes: a fake API server simulates watches of Nodes and gate pods over TLS and HTTP/2, with initial events and in protobuf; a real API server answers everything else. %s %s", e.Replayed.Nodes, requests, replayed.note()),
	}
	return r, nil
}

// measureReplayed measures nodegate with the fake API server, and returns a sentence about
// its requests.
func measureReplayed(ctx context.Context, f *steady.Fleet, size FleetSize, starts int) (memories, string, error) {
	server, err := fakeapi.Start(f.Fake(size.Nodes), f.Cluster.Admin())
	if err != nil {
		return memories{}, "", err
	}
	defer server.Stop()
	m, err := measureStarts(ctx, f, size, starts, server.Config, func(ctx context.Context) error {
		return await.Pause(ctx, reportTime) // the server sends heartbeats
	})
	return m, fmt.Sprintf("It answered %d WatchLists with %d objects, %.0f MB, and received %d writes.",
		server.WatchLists.Load(), server.Initial.Load(), float64(server.InitialBytes.Load())/1e6, server.Writes.Load()), err
}

// measureStored measures nodegate with a real API server.
func measureStored(ctx context.Context, f *steady.Fleet, size FleetSize, starts int) (m memories, err error) {
	if err := f.Store(ctx, size.Nodes, size.Others); err != nil {
		return m, err
	}
	heartbeats, err := f.Driver.NewHeartbeats(ctx, func(*corev1.Node) bool { return true })
	if err != nil {
		return m, err
	}
	direct := func(config *rest.Config) *rest.Config { return config }
	return measureStarts(ctx, f, size, starts, direct, func(ctx context.Context) error {
		ctx, stop := context.WithTimeout(ctx, reportTime)
		defer stop()
		_, err := heartbeats.Send(ctx, float64(steady.ReportsPerSecond(size.Nodes)))
		return err
	})
}

// measureStarts starts nodegate several times. Each time it waits until nodegate has
// reconciled all nodes, and lets nodes report for a while.
func measureStarts(ctx context.Context, f *steady.Fleet, size FleetSize, starts int, route func(*rest.Config) *rest.Config, reportNodes func(context.Context) error) (m memories, err error) {
	account := f.Installation.ServiceAccount
	config, err := f.Cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return m, err
	}
	one := func() (err error) {
		// The fake API server does not review tokens.
		controller, err := testbed.StartControllerAs(f.Cluster, f.Installation, route(config), "--metrics-secure=false")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, controller.Stop()) }()
		if err := steady.AwaitOpen(ctx, controller, steady.GateNames, size.Nodes); err != nil {
			return err
		}
		if err := reportNodes(ctx); err != nil {
			return err
		}
		return m.read(ctx, controller)
	}
	for range starts {
		if err := one(); err != nil {
			return m, err
		}
	}
	return m, nil
}

// memories contains memory sizes of nodegate in MiB, with one value per start.
type memories struct {
	peak []float64
	// anonymous and files are the resident memory at the end: of the process itself, and
	// of the program's file.
	anonymous, files []float64
	heap             []float64 // in use
}

func (m *memories) read(ctx context.Context, controller *testbed.Controller) error {
	memory, err := meter.Memory(controller.PID())
	if err != nil {
		return err
	}
	metrics, err := meter.Of(ctx, controller.Metrics)
	if err != nil {
		return err
	}
	m.peak = append(m.peak, float64(memory.VmHWM)/mebibyte)
	m.anonymous = append(m.anonymous, float64(memory.RssAnon)/mebibyte)
	m.files = append(m.files, float64(memory.VmRSS-memory.RssAnon)/mebibyte)
	m.heap = append(m.heap, metrics.Sum("go_memstats_heap_inuse_bytes", nil)/mebibyte)
	return nil
}

func (m *memories) row(size FleetSize) report.Row {
	what := fmt.Sprintf("peak, %d nodes, %d gate pods", size.Nodes, size.Nodes*len(steady.DaemonNames))
	if size.Others > 0 {
		what += fmt.Sprintf(", %d other pods", size.Others)
	}
	return report.Alone(what, "MiB", size.goal(), m.peak...)
}

// note returns a sentence about the parts of the memory.
func (m *memories) note() string {
	return fmt.Sprintf("Resident memory at the end: %s MiB anonymous, %s MiB of the program's file; heap in use: %s MiB.",
		report.SpreadOf(m.anonymous), report.SpreadOf(m.files), report.SpreadOf(m.heap))
}
