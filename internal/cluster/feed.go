// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Handler is told what has changed. Its methods are called from many
// goroutines, must be cheap, must not block, and may call the Feed.
type Handler interface {
	// NodeChanged tells which facts about a node may have changed, or that the node
	// is gone.
	NodeChanged(name string, change gate.Change)
	// GatesChanged tells that something may have changed that concerns every
	// node: the gates or their completeness, the DaemonSets (and with these what
	// must be observed), or whether the Nodes and Pods are known. Its first call
	// comes when the gates have been read.
	GatesChanged()
}

// Options say what to observe, and who is told.
type Options struct {
	// Config reaches the API server. Unless it sets a rate limit there is none.
	Config *rest.Config
	// Handler is told of changes.
	Handler Handler
	// Log gets one line per transition of a feed.
	Log logr.Logger
	// Clock tells the age of what the API server has. Default: the real one.
	Clock clock.PassiveClock
	// Gates is where NodeGates come from. Default: the API server. With another,
	// it is asked for none, and need not know the kind.
	Gates GateSource
}

// Feed observes all NodeGates and, of the API server, all Nodes and those
// DaemonSets, Pods, CSINodes and ResourceSlices that are needed. Its methods
// may be called at any time, from many goroutines.
type Feed struct {
	log     logr.Logger
	handler Handler
	sources sources

	nodes      *nodeStore
	daemonSets *daemonSetStore
	gates      GateSource

	// needed is what must be observed; Run starts and stops feeds accordingly.
	needed atomic.Pointer[needs]
	adjust signal

	// What Run has started; Run alone writes. The maps are immutable.
	nodeFeed       atomic.Pointer[nodeFeed]
	daemonSetFeeds atomic.Pointer[map[string]*daemonSetFeed]
	podFeeds       atomic.Pointer[map[gate.PodQuery]*podFeed]
	csiNodeFeed    atomic.Pointer[csiNodeFeed]
	sliceFeeds     atomic.Pointer[map[string]*sliceFeed]
	goroutines     sync.WaitGroup
}

// FeedStatus says how one feed fares.
type FeedStatus struct {
	// Name says what is observed, for people.
	Name string
	// Synced is true once everything has been read.
	Synced bool
	// Live is true while what has been read is being kept up to date.
	Live bool
	// Err is why the feed is not live. Nil while it is, or is being read.
	Err error
}

// New returns a Feed. Nothing is observed before Run.
func New(o Options) (*Feed, error) {
	s, err := newSources(o.Config)
	if err != nil {
		return nil, err
	}
	return newFeed(s, o), nil
}

func newFeed(s sources, o Options) *Feed {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	f := &Feed{log: o.Log, handler: o.Handler, sources: s, adjust: newSignal()}
	f.nodes = newNodeStore(o.Handler.NodeChanged)
	f.daemonSets = newDaemonSetStore(o.Handler.GatesChanged)
	if f.gates = o.Gates; f.gates == nil {
		f.gates = apiGates{gateStore: newGateStore(o, s.definition), listWatch: s.gates}
	}
	f.needed.Store(&needs{})
	f.daemonSetFeeds.Store(&map[string]*daemonSetFeed{})
	f.podFeeds.Store(&map[gate.PodQuery]*podFeed{})
	f.sliceFeeds.Store(&map[string]*sliceFeed{})
	return f
}

// SetNeeds says what must be observed from now on: no more and no less. It
// does not wait. Until something that is newly needed has been read, it is
// unknown; a new annotation key, resource or field of nodeInfo has all Nodes
// read again, during which NodesSynced is false.
func (f *Feed) SetNeeds(n gate.Needs) {
	f.needed.Store(newNeeds(n))
	f.nodes.need(n)
	f.adjust.send()
}

// NodesSynced tells whether the Nodes have been read with all that is needed
// of them, and are being kept up to date. While it is false, Facts knows no
// node, and nothing can be decided: a node that Facts does not know then need
// not be gone. When it becomes true, GatesChanged is called.
func (f *Feed) NodesSynced() bool {
	r := f.nodeFeed.Load()
	return r != nil && r.isLive() && f.nodes.current()
}

// NodeNames returns the names of all nodes, in no order.
func (f *Feed) NodeNames() []string { return f.nodes.names() }

// DaemonSets returns the DaemonSets of all needed namespaces.
func (f *Feed) DaemonSets() *gate.DaemonSets { return f.daemonSets.snapshot.Load() }

// Gates returns the NodeGates, by name, and whether these are certain to be
// all. A gate that disappears stays here until it is certain that it was
// deleted, rather than made invisible. The gates are shared: do not change
// them.
func (f *Feed) Gates() (gates []*v1alpha1.NodeGate, complete bool) { return f.gates.Gates() }

// GatesFrom is what records call the source of the gates.
func (f *Feed) GatesFrom() string { return f.gates.Name() }

// DeletedGates names gates that are known to have been deleted, for as long as
// the gates are not complete. It is read only.
func (f *Feed) DeletedGates() map[string]bool { return f.gates.Deleted() }

// GatesError says why it cannot be known whether the gates are all there. It
// is nil if they are, and while that is only a matter of time.
func (f *Feed) GatesError() error { return f.gates.Err() }

// Facts returns what is known of a node: Node, Zone, DaemonSets, Pods, CSINode,
// ResourceSlices and CompleteSources are filled in. It is false while the node, or enough of it,
// is not known (see NodesSynced).
func (f *Feed) Facts(node string) (gate.Facts, bool) {
	if !f.NodesSynced() {
		return gate.Facts{}, false
	}
	n, zone, ok := f.nodes.get(node)
	if !ok {
		return gate.Facts{}, false
	}
	_, complete := f.Gates()
	podFeeds := *f.podFeeds.Load()
	facts := gate.Facts{
		Node:            *n,
		Zone:            zone,
		DaemonSets:      f.DaemonSets(),
		Pods:            make(map[gate.PodQuery][]gate.Pod, len(podFeeds)),
		CompleteSources: map[string]bool{f.gates.Name(): complete},
	}
	for query, feed := range podFeeds {
		if feed.isLive() {
			facts.Pods[query] = feed.pods.on(node)
		}
	}
	if feed := f.csiNodeFeed.Load(); feed != nil && feed.isLive() {
		facts.CSINode = feed.csiNodes.of(node)
	}
	facts.ResourceSlices = f.slicesOn(node)
	return facts, true
}

// FactsOf is Facts for a decision that looks at no more than these needs: of pods,
// CSINodes and ResourceSlices, no others are filled in.
func (f *Feed) FactsOf(node string, n *gate.Needs) (gate.Facts, bool) {
	if !f.NodesSynced() {
		return gate.Facts{}, false
	}
	known, zone, ok := f.nodes.get(node)
	if !ok {
		return gate.Facts{}, false
	}
	facts := gate.Facts{Node: *known, Zone: zone, DaemonSets: f.DaemonSets()}
	if len(n.Pods) > 0 {
		facts.Pods = make(map[gate.PodQuery][]gate.Pod, len(n.Pods))
	}
	podFeeds := *f.podFeeds.Load()
	for _, query := range n.Pods {
		if feed := podFeeds[query]; feed != nil && feed.isLive() {
			facts.Pods[query] = feed.pods.on(node)
		}
	}
	if feed := f.csiNodeFeed.Load(); n.CSINodes && feed != nil && feed.isLive() {
		facts.CSINode = feed.csiNodes.of(node)
	}
	if len(n.ResourceSlices) > 0 {
		facts.ResourceSlices = f.slicesOn(node)
	}
	return facts, true
}

// Observe takes in a Node as the API server returned it from a write, so that
// the next decision knows of that write. A Node that is older than what is
// known, or of which nothing is known, is ignored.
func (f *Feed) Observe(n *corev1.Node) { f.nodes.observe(n) }

// Refresh reads a node from the API server and takes it in, or forgets it if
// it does not exist. It is for those who have learned from a write that what
// is known of the node is outdated, and need not wait for the watch. It fails
// if the node cannot be read.
func (f *Feed) Refresh(ctx context.Context, name string) error {
	before, _, known := f.nodes.get(name)
	if !known {
		return nil
	}
	node, err := f.sources.node(ctx, name)
	switch {
	case err == nil:
		f.nodes.observe(node)
	case apierrors.IsNotFound(err):
		f.nodes.forget(before)
	default:
		return fmt.Errorf("reading node: %w", err)
	}
	return nil
}

// Status says how each feed fares, by name.
func (f *Feed) Status() []FeedStatus {
	return f.statusOf(f.needed.Load())
}

// StatusOf says the same of what these needs take.
func (f *Feed) StatusOf(n gate.Needs) []FeedStatus { return f.statusOf(newNeeds(n)) }

func (f *Feed) statusOf(needed *needs) []FeedStatus {
	all := []FeedStatus{f.nodeStatus(), f.gates.Status()}
	daemonSetFeeds, podFeeds := *f.daemonSetFeeds.Load(), *f.podFeeds.Load()
	for namespace := range needed.namespaces {
		status := FeedStatus{Name: daemonSetsName(namespace)}
		if r, ok := daemonSetFeeds[namespace]; ok {
			status = r.status()
		}
		all = append(all, status)
	}
	for query := range needed.queries {
		status := FeedStatus{Name: podsName(query)}
		if r, ok := podFeeds[query]; ok {
			status = r.status()
		}
		all = append(all, status)
	}
	if needed.csiNodes {
		status := FeedStatus{Name: csiNodesName}
		if r := f.csiNodeFeed.Load(); r != nil {
			status = r.status()
		}
		all = append(all, status)
	}
	all = append(all, f.sliceStatus(needed.drivers)...)
	slices.SortFunc(all, func(a, b FeedStatus) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b FeedStatus) bool { return a.Name == b.Name })
}

func (f *Feed) nodeStatus() FeedStatus {
	r := f.nodeFeed.Load()
	if r == nil {
		return FeedStatus{Name: nodesName}
	}
	status := r.status()
	status.Synced = status.Synced && f.nodes.current()
	return status
}

// Unsynced names what is needed and has not been read yet. A feed that was
// read and has lost its watch since is not named here (see Status), nor is one
// of a kind that the API server does not have: there is nothing to wait for.
func (f *Feed) Unsynced() []string {
	var names []string
	for _, s := range f.Status() {
		if !s.Synced && !errors.Is(s.Err, errNotServed) {
			names = append(names, s.Name)
		}
	}
	return names
}

// Run observes until the context ends, and returns when all that it started
// has ended. It is called once.
func (f *Feed) Run(ctx context.Context) error {
	defer f.goroutines.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.goroutines.Go(func() { f.gates.Run(ctx, f.handler.GatesChanged) })
	f.adjustFeeds(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.adjust:
			f.adjustFeeds(ctx)
		}
	}
}

// needs is gate.Needs without duplicates.
type needs struct {
	namespaces map[string]bool
	queries    map[gate.PodQuery]bool
	csiNodes   bool
	drivers    map[string]bool
}

func newNeeds(n gate.Needs) *needs {
	out := &needs{namespaces: make(map[string]bool), queries: make(map[gate.PodQuery]bool), csiNodes: n.CSINodes, drivers: make(map[string]bool)}
	for _, driver := range n.ResourceSlices {
		out.drivers[driver] = true
	}
	for _, namespace := range n.DaemonSetNamespaces {
		out.namespaces[namespace] = true
	}
	for _, query := range n.Pods {
		out.queries[query] = true
	}
	return out
}

// signal wakes a goroutine. Signals that are sent before it wakes are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
