// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/fakeapi"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/steady"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A largeFleet is a steady fleet that the fake API server simulates, and that nodes join.
type largeFleet struct {
	*steady.Fleet
	nodes  int
	server *fakeapi.Server
	// joined is the number of nodes that have joined.
	joined int
}

// replay starts a fake API server with a fleet of the given size. The caller must stop it.
func replay(f *steady.Fleet, nodes int) (*largeFleet, error) {
	fleet := f.Fake(nodes)
	fleet.Heartbeats = 0
	fleet.Index = func(name string) (int, bool) {
		i, err := strconv.Atoi(strings.TrimPrefix(name, "node-"))
		return i, err == nil
	}
	server, err := fakeapi.Start(fleet, f.Cluster.Admin())
	if err != nil {
		return nil, err
	}
	return &largeFleet{Fleet: f, nodes: nodes, server: server}, nil
}

// leaseDuration is longer than the default of two seconds, so that the leader keeps its Lease
// although all processes of the benchmark share the machine's cores.
const leaseDuration = 10 * time.Second

// start starts a replica of nodegate.
func (l *largeFleet) start(ctx context.Context, arguments ...string) (*testbed.Controller, error) {
	account := l.Installation.ServiceAccount
	config, err := l.Cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return nil, err
	}
	// The fake API server does not review tokens.
	return testbed.StartControllerAs(l.Cluster, l.Installation, l.server.Config(config), append(arguments, "--metrics-secure=false", "--leader-elect-lease-duration", leaseDuration.String())...)
}

// scrapeInterval is the interval at which metrics are read. Each time costs nodegate
// milliseconds of CPU time.
const scrapeInterval = 250 * time.Millisecond

// awaitVerified waits until a leader has counted all nodes of the fleet as open.
func (l *largeFleet) awaitVerified(ctx context.Context, leader *testbed.Controller) error {
	return await.Until(ctx, "nodegate to reconcile all nodes", func(ctx context.Context) error {
		select {
		case <-leader.Done():
			return leader.ExitError()
		case <-time.After(scrapeInterval):
		}
		metrics, err := meter.Of(ctx, leader.Metrics)
		if err != nil {
			return err
		}
		for _, name := range steady.GateNames {
			open := int(metrics.Sum("nodegate_gate_nodes", map[string]string{"gate": name, "state": "open"}))
			if open < l.nodes+l.joined {
				// Objects that have been sent count as progress, which await requires.
				return fmt.Errorf("gate %s is open on %d of %d nodes; %d objects have been sent", name, open, l.nodes, l.server.Initial.Load())
			}
		}
		return nil
	})
}

// awaitStandby waits until a replica that is not the leader has received everything.
func (l *largeFleet) awaitStandby(ctx context.Context, standby *testbed.Controller, sent int64) error {
	want := sent + int64((l.nodes+l.joined)*(1+len(l.Daemons)))
	err := await.Until(ctx, "a second replica to receive all objects", func(context.Context) error {
		if now := l.server.Initial.Load(); now < want {
			return fmt.Errorf("%d of %d objects have been sent", now-sent, want-sent)
		}
		return nil
	})
	return errors.Join(err, standby.AwaitReady(ctx))
}

// joining returns the Node that joins next, with all gates closed, and its number.
func (l *largeFleet) joining() (*corev1.Node, int) {
	i := l.nodes + l.joined
	l.joined++
	node := l.Node(i)
	closeAll(node)
	return node, i
}

// closeAll closes all gates of a node, as the API server does when a kubelet creates it.
func closeAll(node *corev1.Node) {
	for _, name := range steady.GateNames {
		taint := corev1.Taint{Key: "bench.nodegate.dev/" + name, Effect: corev1.TaintEffectNoSchedule}
		node.Spec.Taints = append(node.Spec.Taints, taint)
		node.Annotations[v1alpha1.RecordAnnotationPrefix+name] = gate.Record{
			State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Taint: taint.ToString(), Source: v1alpha1.SourceCRD,
			Boot: node.Status.NodeInfo.BootID,
		}.String()
	}
}

// putPods creates or updates the daemons' pods on a node.
func (l *largeFleet) putPods(i int, ready bool) {
	now := time.Now()
	for daemon := range l.Daemons {
		pod := l.Pod(daemon, i)
		ids := make([]string, len(pod.Status.ContainerStatuses))
		for c := range ids {
			ids[c] = pod.Status.ContainerStatuses[c].ContainerID
		}
		pod.Status = fixture.PodStatus(pod, ready, now)
		for c := range ids {
			pod.Status.ContainerStatuses[c].ContainerID = ids[c]
		}
		l.server.PutPod(daemon, i, pod)
	}
}

// A usage is the CPU time that several processes have used.
type usage struct{ nodegate, server, standIn time.Duration }

// used returns the CPU times so far: of nodegate, of the API server and etcd, and of this
// process, which is the fake API server.
func (l *largeFleet) used(nodegate int) (u usage, err error) {
	if u.nodegate, err = meter.CPU(nodegate); err != nil {
		return u, err
	}
	if u.server, err = meter.CPU(l.Cluster.PID(testcluster.APIServer), l.Cluster.PID(testcluster.Etcd)); err != nil {
		return u, err
	}
	u.standIn, err = meter.CPU(os.Getpid())
	return u, err
}

func (u usage) minus(before usage) usage {
	return usage{u.nodegate - before.nodegate, u.server - before.server, u.standIn - before.standIn}
}

const (
	// A process is idle if it uses at most idleAtMost of CPU time in each of idleSamples
	// samples in a row, which are sampleInterval apart.
	sampleInterval = 100 * time.Millisecond
	idleSamples    = 8
	idleAtMost     = 10 * time.Millisecond
)

// awaitIdle waits until a process is idle, and returns when it was last busy.
func awaitIdle(ctx context.Context, pid int) (busy time.Time, err error) {
	last, err := meter.CPU(pid)
	if err != nil {
		return busy, err
	}
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for quiet := 0; quiet < idleSamples; quiet++ {
		select {
		case <-ctx.Done():
			return busy, fmt.Errorf("waiting for a process to become idle: %w", context.Cause(ctx))
		case <-ticker.C:
		}
		now, err := meter.CPU(pid)
		if err != nil {
			return busy, err
		}
		if now-last > idleAtMost {
			busy, quiet = time.Now(), 0
		}
		last = now
	}
	return busy, nil
}
