// SPDX-License-Identifier: Apache-2.0

// Package gates provides NodeGates from the API server, and defines the interface for
// other sources. A gate that disappears counts as deleted only after the API server has
// confirmed that the CustomResourceDefinition still exists, because a gate may also have
// become invisible.
package gates

import (
	"context"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Source provides NodeGates. There is one at a time: the API server, unless the
// controller's Options specify another. All methods except Run are safe for concurrent
// use at any time.
type Source interface {
	// Name returns the name of the source in records, for example v1alpha1.SourceCRD.
	Name() string
	// Run observes the gates until the context ends, and returns when everything that it
	// started has ended. It calls changed after the gates or their completeness have
	// changed. It must be called once.
	Run(ctx context.Context, changed func())
	// Gates returns the gates, sorted by name, and whether the list is certain to be
	// complete. A gate that disappears stays in the list until it is certain that it was
	// deleted rather than made invisible. A gate that cannot be read is in the list, with
	// its ReadError. The gates are shared and must not be modified.
	Gates() (gates []*v1alpha1.NodeGate, complete bool)
	// Deleted returns the names of gates that are known to have been deleted while the
	// list is not complete. It must not be modified.
	Deleted() map[string]bool
	// Err returns why it is unknown whether the list is complete. It is nil if the list
	// is complete or is expected to be soon.
	Err() error
	// Status returns the status of the source's feed.
	Status() reflector.Status
	// CatchUp waits until has returns true for every gate in its present state, which CatchUp reads,
	// or returns why it no longer waits.
	CatchUp(ctx context.Context, has func(*v1alpha1.NodeGate) bool) error
}

// apiSource provides the NodeGates of the API server.
type apiSource struct {
	*store
	listWatch *cache.ListWatch
}

var _ Source = apiSource{}

// FromAPIServer returns a Source of the NodeGates that listWatch lists and watches.
// definition reads the metadata of their CustomResourceDefinition from the API server.
// silenced, unless nil, is called when the watch has been silent for so long that the
// gates are listed again.
func FromAPIServer(listWatch *cache.ListWatch, definition func(context.Context) (*metav1.PartialObjectMetadata, error), log logr.Logger, c clock.PassiveClock, silenced func(reflector.Status)) Source {
	s := newStore(definition, log, c)
	s.feed.Silenced = silenced
	return apiSource{store: s, listWatch: listWatch}
}

// Name implements Source.
func (apiSource) Name() string { return v1alpha1.SourceCRD }

// Run implements Source.
func (g apiSource) Run(ctx context.Context, changed func()) {
	g.changed = changed
	in := &reflector.Reflector[*gateclient.StoredGate, *v1alpha1.NodeGate]{
		Observer: g.feed, Sink: g.store,
		Convert: convert, PageSize: pageSize,
	}
	confirmed := make(chan struct{})
	go func() {
		defer close(confirmed)
		g.confirm(ctx)
	}()
	in.Run(ctx, g.listWatch, &gateclient.StoredGate{})
	<-confirmed
}

// pageSize is the number of gates in a page of a list. Each can be as large as the API server
// permits, and a page is decoded as a whole.
const pageSize = 20

// convert returns a gate without the metadata that nothing reads. Its author can fill that with
// more than a megabyte, which every replica would keep.
func convert(g *gateclient.StoredGate) *v1alpha1.NodeGate {
	kept := g.NodeGate
	kept.Labels, kept.Annotations, kept.OwnerReferences, kept.Finalizers, kept.ManagedFields = nil, nil, nil, nil, nil
	return &kept
}

// Gates implements Source.
func (g apiSource) Gates() ([]*v1alpha1.NodeGate, bool) {
	s := g.current.Load()
	return s.gates, s.err == nil
}

// Deleted implements Source.
func (g apiSource) Deleted() map[string]bool { return g.current.Load().deleted }

// Err implements Source.
func (g apiSource) Err() error { return g.whyIncomplete() }

// Status implements Source.
func (g apiSource) Status() reflector.Status { return g.feed.Status() }
