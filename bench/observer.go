// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/cluster"
)

// A sighting is a node as the observer saw it: at a time, with or without the
// gate's taint.
type sighting struct {
	node    string
	tainted bool
	at      time.Time
}

// newClient returns the client that the limit and the observer use: without a
// rate limit, like nodegate's.
func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	return clientOf(config)
}

func clientOf(config *rest.Config) (kubernetes.Interface, error) {
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

// runObserver watches all nodes and writes a line for each of their states, with
// the time at which it came, until ctx ends.
func runObserver(ctx context.Context, kubeconfig string, out io.Writer) error {
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	watch, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer watch.Stop()
	lines := bufio.NewWriter(out)
	if err := sayReady(out); err != nil {
		return err
	}
	for event := range watch.ResultChan() {
		now := time.Now()
		node, ok := event.Object.(*corev1.Node)
		switch {
		case ctx.Err() != nil:
			return nil
		case !ok:
			return fmt.Errorf("watching nodes: %v", event.Object)
		}
		fmt.Fprintln(lines, node.Name, hasTaint(node), now.UnixNano())
		if err := lines.Flush(); err != nil {
			return fmt.Errorf("writing what was seen: %w", err)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watching nodes: the watch ended")
}

func hasTaint(node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == taint.Key {
			return true
		}
	}
	return false
}

// An observer is the process that does so, as the measurement sees it.
type observer struct {
	*child

	mu    sync.Mutex
	first map[sightingKey]time.Time // since the last reset
	last  map[string]bool           // tainted, by node
	more  chan struct{}             // holds at most one word that there is more
	ended chan struct{}
}

type sightingKey struct {
	node    string
	tainted bool
}

func startObserver(ctx context.Context, c *cluster.Cluster) (*observer, error) {
	p, err := startChild(ctx, c, observerProgram, c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	o := &observer{
		child: p, first: map[sightingKey]time.Time{}, last: map[string]bool{},
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go o.read()
	return o, nil
}

func (o *observer) read() {
	defer close(o.ended)
	defer o.drain()
	for o.lines.Scan() {
		var s sighting
		var nanoseconds int64
		if _, err := fmt.Sscan(o.lines.Text(), &s.node, &s.tainted, &nanoseconds); err != nil {
			return
		}
		s.at = time.Unix(0, nanoseconds)
		o.note(s)
	}
}

// stop ends the observer.
func (o *observer) stop() error {
	return o.child.stop(func() { <-o.ended })
}

func (o *observer) note(s sighting) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last[s.node] = s.tainted
	key := sightingKey{s.node, s.tainted}
	if _, seen := o.first[key]; !seen {
		o.first[key] = s.at
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// reset forgets when what was seen.
func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.first)
}

// await waits until count nodes are as they should be, and returns when each of
// them was first seen so.
func (o *observer) await(ctx context.Context, count int, tainted bool) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		seen := o.seen(tainted)
		if len(seen) == count {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for nodes to be seen with taint=%t: %d of %d are: %w", tainted, len(seen), count, ctx.Err())
		case <-o.ended:
			return nil, fmt.Errorf("waiting for nodes to be seen with taint=%t: the observer ended", tainted)
		case <-o.more:
		}
	}
}

func (o *observer) seen(tainted bool) map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := make(map[string]time.Time)
	for key, at := range o.first {
		if key.tainted == tainted && o.last[key.node] == tainted {
			seen[key.node] = at
		}
	}
	return seen
}
