// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/gates"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Handler receives notifications of changes. Its methods are called concurrently. They
// must return quickly, must not block, and may call the Feed.
type Handler interface {
	// NodeChanged is called when facts about a node may have changed, with those facts,
	// or when the node has been deleted.
	NodeChanged(name string, change gate.Change)
	// GatesChanged is called when something may have changed that concerns every node:
	// the gates or their completeness, the DaemonSets (and therefore what must be
	// observed), or whether the Nodes and Pods are known. It is first called when the
	// gates have been read.
	GatesChanged()
}

// Options specifies what a Feed observes and whom it notifies.
type Options struct {
	// Config is the configuration of clients for the API server. There is no rate limit
	// unless it sets one.
	Config *rest.Config
	// Handler receives notifications of changes.
	Handler Handler
	// Log receives one line for each transition of a feed.
	Log logr.Logger
	// Clock determines the age of what the API server has sent. Defaults to the real
	// clock.
	Clock clock.PassiveClock
	// Silenced, unless nil, is called when a feed lists everything again because its
	// watch has been silent.
	Silenced func(reflector.Status)
	// Gates is the source of NodeGates. Defaults to the API server. With another source,
	// the API server need not serve NodeGates.
	Gates gates.Source
}

// Feed observes all NodeGates, all Nodes, and those DaemonSets, Pods, CSINodes,
// ResourceSlices and other objects that are needed. All methods except Run are safe for concurrent use at
// any time.
type Feed struct {
	log      logr.Logger
	handler  Handler
	sources  sources
	silenced func(reflector.Status)
	clock    clock.PassiveClock

	nodes      *nodestore.Store
	daemonSets *daemonSets
	gates      gates.Source

	// needed specifies what must be observed. Run starts and stops feeds accordingly.
	needed atomic.Pointer[Needs]
	adjust reflector.Wake
	// loaded is the value of needed for which isLoading has been false.
	loaded atomic.Pointer[Needs]

	// Feeds that Run has started. Only Run writes these fields. The maps are immutable.
	nodeFeed       atomic.Pointer[nodeFeed]
	daemonSetFeeds atomic.Pointer[map[string]*daemonSetFeed]
	podFeeds       atomic.Pointer[map[gate.PodQuery]*podFeed]
	csiNodeFeed    atomic.Pointer[csiNodeFeed]
	sliceFeeds     atomic.Pointer[map[SliceSource]*sliceFeed]
	ruleFeed       atomic.Pointer[ruleFeed]
	objectFeeds    atomic.Pointer[map[gate.ObjectSource]*objectFeed]
	// manyNamespaces is true if pods of so many namespaces are needed that they may share a
	// watch.
	manyNamespaces bool
	goroutines     sync.WaitGroup
}

// New returns a Feed. It observes nothing until Run is called.
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
	f := &Feed{log: o.Log, handler: o.Handler, sources: s, silenced: o.Silenced, clock: o.Clock, adjust: reflector.NewWake()}
	f.nodes = nodestore.New(nodestore.Options{Changed: o.Handler.NodeChanged, KnownPods: f.knownPods, Clock: o.Clock})
	f.daemonSets = newDaemonSets(o.Handler.GatesChanged)
	if f.gates = o.Gates; f.gates == nil {
		f.gates = gates.FromAPIServer(s.gates, s.definition, o.Log, o.Clock, o.Silenced)
	}
	f.needed.Store(&Needs{})
	f.daemonSetFeeds.Store(&map[string]*daemonSetFeed{})
	f.podFeeds.Store(&map[gate.PodQuery]*podFeed{})
	f.sliceFeeds.Store(&map[SliceSource]*sliceFeed{})
	f.objectFeeds.Store(&map[gate.ObjectSource]*objectFeed{})
	return f
}

// SetNeeds specifies what must be observed from now on. It does not wait. What is newly
// needed is unknown until it has been read. When a new annotation key, resource or field
// of nodeInfo is needed, all Nodes are read again, and NodesSynced is false meanwhile.
func (f *Feed) SetNeeds(n gate.Needs) {
	f.needed.Store(NewNeeds(n))
	f.nodes.Need(n)
	f.adjust.Send()
}

// NodesSynced reports whether the Nodes have been read with everything that is needed of
// them, and are being kept up to date. While it is false, Facts returns no facts, and the
// absence of a node does not mean that it was deleted. When it becomes true, GatesChanged
// is called.
func (f *Feed) NodesSynced() bool {
	r := f.nodeFeed.Load()
	return r != nil && r.IsLive() && f.nodes.UpToDate()
}

// Gone reports whether the nodes are synced and do not include this node. That
// Facts returned false does not imply this: the nodes may not have been synced then.
func (f *Feed) Gone(node string) bool { return f.NodesSynced() && !f.nodes.Has(node) }

// SameBoot returns the names, unsorted, of nodes whose boot ID equals that of another
// node. A reboot of such a node cannot be detected.
func (f *Feed) SameBoot() []string { return f.nodes.SameBoot() }

// NodeNames returns the names of all nodes. Those with taints come first, because their
// gates may be waiting to open.
func (f *Feed) NodeNames() []string { return f.nodes.Names() }

// Rewinds returns how often the nodes were replaced by an earlier state than had been delivered.
func (f *Feed) Rewinds() int64 { return f.nodes.Rewinds() }

// DaemonSets returns the DaemonSets of all needed namespaces.
func (f *Feed) DaemonSets() *gate.DaemonSets { return f.daemonSets.snapshot.Load() }

// Gates returns the NodeGates, sorted by name, and whether the list is certain to be
// complete. A gate that disappears stays in the list until it is certain that it was
// deleted rather than made invisible. The gates are shared and must not be modified.
func (f *Feed) Gates() (gates []*v1alpha1.NodeGate, complete bool) { return f.gates.Gates() }

// GatesFrom returns the name of the source of gates in records.
func (f *Feed) GatesFrom() string { return f.gates.Name() }

// DeletedGates returns the names of gates that are known to have been deleted while the
// list of gates is not complete. It must not be modified.
func (f *Feed) DeletedGates() map[string]bool { return f.gates.Deleted() }

// CatchUp is gates.Source.CatchUp.
func (f *Feed) CatchUp(ctx context.Context, has func(*v1alpha1.NodeGate) bool) error {
	return f.gates.CatchUp(ctx, has)
}

// GatesError returns why it is unknown whether the list of gates is complete. It is nil
// if the list is complete or is expected to be soon.
func (f *Feed) GatesError() error { return f.gates.Err() }

// Facts returns the facts about a node: Node, Boot, Zone, SilentSince, ReadySince, DaemonSets, Pods,
// PodsAt, Loading, CSINode, ResourceSlices, Devices, SharedPools, DeviceTaintRules, Objects and
// CompleteSources. It returns false if the node is unknown or NodesSynced is false.
func (f *Feed) Facts(node string) (gate.Facts, bool) {
	facts, ok := f.nodeFacts(node)
	if !ok {
		return gate.Facts{}, false
	}
	_, complete := f.Gates()
	facts.CompleteSources = map[string]bool{f.gates.Name(): complete}
	podFeeds := *f.podFeeds.Load()
	facts.Pods = make(map[gate.PodQuery][]gate.Pod, len(podFeeds))
	for query, feed := range podFeeds {
		feed.fill(&facts, query)
	}
	f.fillCSINode(&facts)
	f.fillSlices(&facts, nil)
	facts.Objects = f.objectsOn(node, f.objectQueries())
	return facts, true
}

// FactsOf is like Facts for a decision that has only these needs. It returns no other pods,
// CSINodes, ResourceSlices, devices and objects, and no CompleteSources.
func (f *Feed) FactsOf(node string, n *gate.Needs) (gate.Facts, bool) {
	facts, ok := f.nodeFacts(node)
	if !ok {
		return gate.Facts{}, false
	}
	if len(n.Pods) > 0 {
		facts.Pods = make(map[gate.PodQuery][]gate.Pod, len(n.Pods))
	}
	podFeeds := *f.podFeeds.Load()
	for _, query := range n.Pods {
		if feed := podFeeds[query]; feed != nil {
			feed.fill(&facts, query)
		}
	}
	if n.CSINodes {
		f.fillCSINode(&facts)
	}
	f.fillSlices(&facts, n)
	facts.Objects = f.objectsOn(node, n.Objects)
	return facts, true
}

// nodeFacts returns the facts about a node that all decisions need.
func (f *Feed) nodeFacts(node string) (gate.Facts, bool) {
	if !f.NodesSynced() {
		return gate.Facts{}, false
	}
	loading := f.isLoading() // before anything is read
	facts, ok := f.nodes.Get(node)
	facts.Loading, facts.DaemonSets = loading, f.DaemonSets()
	return facts, ok
}

// Observe stores a Node that the API server returned from a write, so that the next
// decision takes that write into account. A Node that is unknown, or older than the
// stored state, is ignored.
func (f *Feed) Observe(n *corev1.Node) { f.nodes.Observe(n) }

// Refresh reads a node from the API server and stores it, or drops it if it does not
// exist. It is used when a failed write has shown that the stored state is outdated, in
// order not to wait for the watch. It returns an error if the node cannot be read.
func (f *Feed) Refresh(ctx context.Context, name string) error {
	before, known := f.nodes.Get(name)
	if !known {
		return nil
	}
	node, err := f.sources.node(ctx, name)
	switch {
	case err == nil:
		f.nodes.Observe(node)
	case clients.DoesNotExist(err):
		f.nodes.Forget(&before.Node)
	default:
		return fmt.Errorf("reading node: %w", err)
	}
	return nil
}

// Run observes until the context ends, and returns when everything that it started has
// ended. It must be called once.
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
