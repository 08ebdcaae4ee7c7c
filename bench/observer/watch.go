// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/bench/child"
	"github.com/nodegate/nodegate/bench/scene"
)

const (
	nodesPath = "/api/v1/nodes"
	podsPath  = "/api/v1/namespaces/" + scene.Namespace + "/pods"
)

// Run is the observer's process. It writes a line for each thing that it sees,
// with the time at which that came, until ctx ends.
func Run(ctx context.Context, kubeconfig string, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.NextProtos = []string{"http/1.1"} // so that each watch has a connection of its own
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	w := writer{out: bufio.NewWriter(out)}
	streams := []*stream{
		{client: client, url: config.Host + nodesPath, look: aspectsOfNode, held: map[string]aspects{}},
		{client: client, url: config.Host + podsPath, look: aspectsOfPod, held: map[string]aspects{}},
	}
	for _, s := range streams {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	if err := child.SayReady(out); err != nil {
		return err
	}
	var both errgroup.Group
	for _, s := range streams {
		both.Go(func() error { return s.run(ctx, &w) })
	}
	if err := both.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// aspects are what holds of an object, one bit each.
type aspects uint8

func aspectsOfNode(e event) aspects {
	if e.tainted() {
		return 1 << Tainted
	}
	return 1 << Open
}

func aspectsOfPod(e event) aspects {
	a := aspects(1 << Unready)
	if e.ready() {
		a = 1 << Ready
	}
	if e.bound() {
		a |= 1 << Bound
	}
	return a
}

// writer writes what several streams see.
type writer struct {
	mu  sync.Mutex
	out *bufio.Writer
}

// write writes a sighting, and flushes if no more input is available.
func (w *writer) write(sightings []Sighting, last bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range sightings {
		if _, err := w.out.Write(s.appendLine(w.out.AvailableBuffer())); err != nil {
			return err
		}
	}
	if last {
		return w.out.Flush()
	}
	return nil
}
