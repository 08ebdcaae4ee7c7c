// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// GateSource is where NodeGates come from. There is one at a time: the API
// server, unless Options name another. Its methods may be called at any time,
// from many goroutines.
type GateSource interface {
	// Name is what records call the source (v1alpha1.SourceCRD and its like).
	Name() string
	// Run observes until the context ends, and returns when all that it started
	// has ended. It calls changed after the gates, or their completeness, have
	// changed. It is called once.
	Run(ctx context.Context, changed func())
	// Gates returns the gates, by name, and whether they are certain to be all. A
	// gate that disappears stays until it is certain that it was deleted, rather
	// than made invisible; one that cannot be read is there, with its ReadError. The
	// gates are shared and read only.
	Gates() (gates []*v1alpha1.NodeGate, complete bool)
	// Deleted names gates that are known to have been deleted, for as long as the
	// gates are not complete. It is read only.
	Deleted() map[string]bool
	// Err says why it cannot be known whether the gates are all there. It is nil
	// if they are, and while that is only a matter of time.
	Err() error
	// Status says how reading them fares.
	Status() FeedStatus
}

// apiGates are the NodeGates of the API server.
type apiGates struct {
	*gateStore
	listWatch *cache.ListWatch
}

var _ GateSource = apiGates{}

// Name implements GateSource.
func (apiGates) Name() string { return v1alpha1.SourceCRD }

// Run implements GateSource.
func (g apiGates) Run(ctx context.Context, changed func()) {
	g.changed = changed
	in := &intake[*storedGate, *v1alpha1.NodeGate]{
		observer: g.feed, sink: g.gateStore,
		convert: func(g *storedGate) *v1alpha1.NodeGate { return &g.NodeGate },
	}
	confirmed := make(chan struct{})
	go func() {
		defer close(confirmed)
		g.confirm(ctx)
	}()
	in.run(ctx, g.listWatch, &storedGate{})
	<-confirmed
}

// Gates implements GateSource.
func (g apiGates) Gates() ([]*v1alpha1.NodeGate, bool) {
	s := g.current.Load()
	return s.gates, s.err == nil
}

// Deleted implements GateSource.
func (g apiGates) Deleted() map[string]bool { return g.current.Load().deleted }

// Err implements GateSource.
func (g apiGates) Err() error { return g.whyIncomplete() }

// Status implements GateSource.
func (g apiGates) Status() FeedStatus { return g.feed.status() }
