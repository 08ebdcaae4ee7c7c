// SPDX-License-Identifier: Apache-2.0

// Package limit implements the limit, which is the minimum cost of nodegate's work: a
// bare loop that watches the daemon's pods and all Nodes, and sends one precomputed PATCH
// for each change of a pod, with nodegate's credentials, client settings and concurrency.
// It decides and checks nothing, drops the Nodes that it receives, and stores only which
// pods were ready. Without a watch of Nodes, no controller can keep a node closed.
package limit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/child"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/testcluster"
)

// Program is the first argument with which the benchmark's program becomes the limit.
const Program = "limit"

// wholeRun is longer than a run of the benchmark.
const wholeRun = 4 * time.Hour

// A Direction specifies the changes that the limit follows.
type Direction string

// Opens follows daemons that become ready, like a gate that never closes again. Follows
// also follows daemons that stop being ready. Watches writes nothing.
const (
	Opens   Direction = "opens"
	Follows Direction = "follows"
	Watches Direction = "watches"
)

// A Process is the parent's handle of the limit's process.
type Process struct {
	*child.Process
	// Metrics is the address that serves the process's metrics, which are those of Go's
	// runtime.
	Metrics string

	ended chan struct{}
}

// Start starts the limit as a separate process. It calls interrupted when the API server has
// ended a watch of the limit.
func Start(ctx context.Context, c *testcluster.Cluster, kubeconfig string, direction Direction, interrupted func()) (*Process, error) {
	process, err := child.Start(ctx, c, Program, kubeconfig, string(direction))
	if err != nil {
		return nil, err
	}
	if !process.Lines.Scan() {
		return nil, errors.Join(errors.New("starting the limit: it has no metrics"), process.Stop(process.Drain))
	}
	p := &Process{Process: process, Metrics: process.Lines.Text(), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for process.Lines.Scan() { // each line is an interruption
			interrupted()
		}
	}()
	return p, nil
}

// Stop stops the limit.
func (p *Process) Stop() error {
	return p.Process.Stop(func() { <-p.ended })
}

// The bodies of the patches. They may be constants because the benchmark's nodes have no
// other taints.
var (
	addTaint    = fmt.Appendf(nil, `[{"op":"add","path":"/spec/taints","value":[{"key":%q,"effect":%q}]}]`, fixture.Taint.Key, fixture.Taint.Effect)
	removeTaint = fmt.Appendf(nil, `[{"op":"test","path":"/spec/taints/0/key","value":%q},{"op":"remove","path":"/spec/taints/0"}]`, fixture.Taint.Key)
)

// A change is a pending write.
type change struct {
	node  string
	ready bool
}

// Run is the main function of the limit's process. It returns when ctx ends.
func Run(ctx context.Context, kubeconfig string, direction Direction) error {
	client, err := child.Client(kubeconfig)
	if err != nil {
		return err
	}
	pods := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "pods", fixture.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = "app=" + fixture.Daemon
	})
	var started atomic.Bool // the first lines are others
	interrupted := func() {
		if started.Load() {
			fmt.Println("interrupted")
		}
	}
	was, events := map[string]bool{}, make(chan watch.Event)
	daemons := &sink{
		interrupted: interrupted,
		existing: func(objects []any) {
			for _, o := range objects {
				pod := o.(*corev1.Pod)
				was[pod.Spec.NodeName] = fixture.Ready(pod)
			}
		},
		event: func(change watch.EventType, o runtime.Object) {
			select {
			case events <- watch.Event{Type: change, Object: o}:
			case <-ctx.Done():
			}
		},
	}
	if err := daemons.start(ctx, pods, &corev1.Pod{}); err != nil {
		return fmt.Errorf("following pods: %w", err)
	}
	all := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	if err := (&sink{interrupted: interrupted}).start(ctx, all, &corev1.Node{}); err != nil {
		return fmt.Errorf("following nodes: %w", err)
	}
	changes := make(chan change, 1024)
	var writers sync.WaitGroup
	for range fixture.Workers {
		writers.Go(func() { write(ctx, client, changes) })
	}
	defer writers.Wait()
	defer close(changes)
	if err := child.SayReady(os.Stdout); err != nil {
		return err
	}
	stop, err := serveMetrics(os.Stdout)
	if err != nil {
		return err
	}
	defer stop()
	started.Store(true)
	return follow(ctx, was, events, direction, changes)
}

// serveMetrics serves the process's metrics until stop is called, and writes the address.
func serveMetrics(out io.Writer) (stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w", err)
	}
	server := &http.Server{Handler: promhttp.Handler(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }() // fails when it is closed
	if _, err := fmt.Fprintln(out, listener.Addr()); err != nil {
		return nil, errors.Join(fmt.Errorf("reporting the metrics' address: %w", err), server.Close())
	}
	return func() { _ = server.Close() }, nil
}

// follow sends the changes of readiness that direction includes, compared with was.
func follow(ctx context.Context, was map[string]bool, pods <-chan watch.Event, direction Direction, changes chan<- change) error {
	for {
		var event watch.Event
		var ok bool
		select {
		case <-ctx.Done():
			return nil
		case event, ok = <-pods:
		}
		if !ok {
			return errors.New("watching pods: the watch ended")
		}
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watching pods: %v", event.Object)
		}
		node, now := pod.Spec.NodeName, fixture.Ready(pod)
		if was[node] != now && (now && direction == Opens || direction == Follows) {
			changes <- change{node, now}
		}
		was[node] = now
	}
}

func write(ctx context.Context, client kubernetes.Interface, changes <-chan change) {
	options := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager} // as nodegate's guards require
	for c := range changes {
		body := addTaint
		if c.ready {
			body = removeTaint
		}
		_, err := client.CoreV1().Nodes().Patch(ctx, c.node, types.JSONPatchType, body, options)
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "limit: patching node %s: %v\n", c.node, err)
		}
	}
}
