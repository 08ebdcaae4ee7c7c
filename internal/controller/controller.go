// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// Feed is where facts come from. It is implemented by cluster.Feed.
type Feed interface {
	// Facts returns what is known of a node; false when there is no such node.
	Facts(node string) (gate.Facts, bool)
	// FactsOf returns no more of them than these needs ask for.
	FactsOf(node string, n *gate.Needs) (gate.Facts, bool)
	// NodesSynced tells whether the nodes are observed. While it is false, Facts
	// knows none.
	NodesSynced() bool
	// NodeNames lists all nodes.
	NodeNames() []string
	// DaemonSets returns the DaemonSets that are observed.
	DaemonSets() *gate.DaemonSets
	// GatesFrom is what records call the source of the gates.
	GatesFrom() string
	// Gates returns all gates, and whether they are known to be all.
	Gates() ([]*v1alpha1.NodeGate, bool)
	// DeletedGates names gates that are known to have been deleted in any case.
	DeletedGates() map[string]bool
	// GatesError says why gates cannot be read.
	GatesError() error
	// SetNeeds says what is to be observed.
	SetNeeds(gate.Needs)
	// Unsynced names what is to be observed and is not yet.
	Unsynced() []string
	// StatusOf says how each feed fares that these needs take.
	StatusOf(gate.Needs) []cluster.FeedStatus
	// Observe takes over a node as the API server just returned it.
	Observe(*corev1.Node)
	// Refresh reads a node anew, or finds out that it is gone.
	Refresh(ctx context.Context, node string) error
}

// Options configure a Controller. Zero values have sensible meanings, except
// where noted.
type Options struct {
	// Namespace is nodegate's own namespace. Required.
	Namespace string
	// AllowedTaintKeys are the taints that the administrator allows, each as
	// key:Effect, or key for NoSchedule; nil allows all, which the confinement
	// policy may then refuse.
	AllowedTaintKeys []string
	// AllowedStampAnnotations are the keys of annotations that the administrator
	// lets gates stamp.
	AllowedStampAnnotations []string
	// TransientTaintPrefixes begin further keys of taints that come and go.
	TransientTaintPrefixes []string
	// Workers is how many nodes are worked on at a time. Default 16.
	Workers int
	// Clock tells the time. Default: the real one.
	Clock clock.WithTicker
	// Log receives one line for each transition.
	Log logr.Logger
}

// Controller decides about nodes and carries the decisions out.
type Controller struct {
	options Options
	allowed gate.AllowedTaints
	stamps  map[string]bool
	clock   clock.WithTicker
	log     logr.Logger

	feed    Feed
	writer  cluster.Applier
	client  client.Client
	set     atomic.Pointer[gateSet]
	asked   atomic.Pointer[gate.Needs] // what the feed was last asked to observe
	lanes   *lanes
	looks   *looks
	queue   workqueue.TypedRateLimitingInterface[string]
	sweep   *sweep
	tally   *tally
	budget  *allocator
	memory  *memory
	holding *holding
	metrics *Metrics
	birth   *birth
	rules   *readinessRules
	rights  *rights
	events  *recorder
	pulse   pulse
	leading atomic.Bool

	// What takes a list of all pods of a node. The last is there in the leader.
	pods      *pacedPods
	inspector *inspector
	bypass    *bypass

	// gatesChanged holds at most one word that gates or DaemonSets changed.
	gatesChanged chan struct{}
}

// New returns a controller. The feed is attached by Attach, before Start.
func New(o Options, api client.Client, m *Metrics) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Workers == 0 {
		o.Workers = 16
	}
	c := &Controller{
		options: o, clock: o.Clock, log: o.Log, client: api, metrics: m,
		tally: newTally(), memory: newMemory(), holding: newHolding(),
		gatesChanged: make(chan struct{}, 1),
		lanes:        newLanes(), looks: newLooks(),
	}
	c.queue = newNodeQueue(&o, c.lanes)
	if o.AllowedTaintKeys != nil {
		c.allowed, _ = gate.ParseAllowedTaints(o.AllowedTaintKeys) // the command line was validated; what cannot be read allows nothing
	}
	c.stamps = setOf(o.AllowedStampAnnotations)
	c.sweep = newSweep(c.queue, o.Workers)
	c.budget = newAllocator(c.tally)
	c.birth = newBirth(api, o.Namespace, o.Log)
	c.rules = newReadinessRules(api, o.Log)
	c.rights = newRights(api, o.Log)
	c.events = newRecorder(api, o.Clock, o.Log, m)
	c.set.Store(&gateSet{})
	return c
}

func setOf(keys []string) map[string]bool {
	set := make(map[string]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set
}

// Attach gives the controller its feed, its writer and what it does with all
// pods of a node. The feed's handler is the controller itself.
func (c *Controller) Attach(f Feed, w cluster.Applier, p cluster.NodePods) {
	c.feed, c.writer = f, w
	c.pods = newPacedPods(p, c.clock)
	c.inspector = newInspector(c.pods, func(node string) { c.NodeChanged(node, gate.Everything()) }, c.log)
}

// NodeChanged implements cluster.Handler. A replica that does not lead has all
// nodes to look at when it comes to lead, and needs no list until then.
func (c *Controller) NodeChanged(name string, change gate.Change) {
	if c.leading.Load() {
		c.looks.tell(name, change)
		c.lanes.mark(name)
		c.queue.Add(name)
	}
}

// GatesChanged implements cluster.Handler.
func (c *Controller) GatesChanged() {
	select {
	case c.gatesChanged <- struct{}{}:
	default: // word has been given already
	}
}

// refreshGap keeps changes that come in bursts from being taken in one by one.
const refreshGap = 100 * time.Millisecond

// refreshInterval is how often all is compiled and looked at anew though nothing is
// known to have changed: what was missed, whyever, is made good by then. To look at
// 5,000 nodes takes a fifth of a second of CPU.
const refreshInterval = 10 * time.Minute

// Follow keeps the compiled gates, and with them what is observed, up to date.
// It runs in every replica, so that a standby knows all that the leader knows.
func (c *Controller) Follow(ctx context.Context) error {
	ticker := c.clock.NewTicker(rulesInterval)
	defer ticker.Stop()
	var refreshed time.Time
	var before map[string]string
	for {
		due := true
		select {
		case <-ctx.Done():
			return nil
		case <-c.gatesChanged:
		case <-ticker.C():
			due = c.clock.Since(refreshed) >= refreshInterval
		}
		managed := c.rules.managed(ctx)
		if !due && maps.Equal(managed, before) {
			continue
		}
		refreshed, before = c.clock.Now(), managed
		c.refreshGates(managed)
		select {
		case <-ctx.Done():
			return nil
		case <-c.clock.After(refreshGap):
		}
	}
}

// refreshGates compiles the gates anew, given the rules that manage taints by key, and
// has every node looked at.
func (c *Controller) refreshGates(managed map[string]string) {
	policy := gate.KeyPolicy{Allowed: c.allowed, Stamps: c.stamps, Managed: managed}
	declared, complete := c.feed.Gates()
	known := known{source: c.feed.GatesFrom(), gates: declared, complete: complete, deleted: c.feed.DeletedGates()}
	set := newGateSet(c.set.Load(), known, policy)
	daemonSets := c.feed.DaemonSets()
	needs := set.needs(daemonSets)
	set.parts = gate.Divide(set.gates, daemonSets)
	c.feed.SetNeeds(needs)
	c.asked.Store(&needs)
	c.metrics.keepGates(set.signals())
	c.metrics.gatesKnown(complete)
	c.tally.agree(set.terms())
	c.set.Store(set)
	c.looks.renew(set.seq)
	c.birth.changed()
	if c.leading.Load() {
		c.lookAtAll()
	}
}

// lookAtAll has every node looked at: those that are there, and those that are
// known from before and may be gone.
func (c *Controller) lookAtAll() {
	c.sweep.all(append(c.feed.NodeNames(), c.tally.names()...))
}

// Start works until the context ends, then finishes what is in hand. It runs
// in the leader only.
func (c *Controller) Start(ctx context.Context) error {
	defer c.queue.ShutDown()
	if !c.awaitFeeds(ctx) {
		return nil
	}
	c.bypass = newBypass(c)
	c.leading.Store(true)
	defer c.leading.Store(false)
	var running sync.WaitGroup
	for range c.options.Workers {
		running.Go(func() { c.work(ctx) })
	}
	running.Go(func() { c.sweep.run(ctx) })
	running.Go(func() { c.settle(ctx) })
	running.Go(func() { newReporter(c).run(ctx) })
	running.Go(func() { c.birth.run(ctx, c.clock, &c.set) })
	running.Go(func() { c.watchRights(ctx) })
	running.Go(func() { c.inspector.run(ctx) })
	running.Go(func() { c.bypass.run(ctx) })
	running.Go(func() { c.events.run(ctx) })
	c.lookAtAll()
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

// feedPatience bounds the wait for feeds before the first decision. A feed
// that never syncs makes its own signals unknown, and must not stop the rest.
const feedPatience = 30 * time.Second

// awaitFeeds is false if the context ends first.
func (c *Controller) awaitFeeds(ctx context.Context) bool {
	timeout := c.clock.NewTimer(feedPatience)
	defer timeout.Stop()
	ticker := c.clock.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for c.Ready() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-timeout.C():
			c.log.Info("starting although not all is observed", "unsynced", c.feed.Unsynced())
			return true
		case <-ticker.C():
		}
	}
	return true
}

// settleInterval is how often it is asked whether the whole fleet has been
// looked at, so that budgets can be given, and who is next in line for them.
const settleInterval = time.Second

// settle finds out when budgets can be given, and calls as many nodes as there
// is room for. What is called is put where it does not keep new work waiting.
func (c *Controller) settle(ctx context.Context) {
	ticker := c.clock.NewTicker(settleInterval)
	defer ticker.Stop()
	for {
		if c.tally.beat(c.clock.Now()) {
			c.log.Info("the process was paused, looking at all nodes before closing any under a budget")
			c.lookAtAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if c.feed.NodesSynced() {
			if seq := c.set.Load().seq; !c.tally.isSettledFor(seq) {
				c.tally.settle(c.feed.NodeNames(), seq)
			}
			c.sweep.all(c.tally.due())
		}
	}
}

// Ready is a readiness check: the gates are known, and everything that they
// need is observed.
func (c *Controller) Ready() error {
	if err := c.unsynced(); err != nil {
		return err
	}
	set := c.set.Load()
	if set.seq == 0 {
		return errors.New("the gates have not been compiled yet")
	}
	// DaemonSets that have just been read have pods that are not asked for yet.
	if !reflect.DeepEqual(*c.asked.Load(), set.needs(c.feed.DaemonSets())) {
		return errors.New("what the gates' DaemonSets need is not asked for yet")
	}
	return c.unsynced() // it may have been asked for just now
}

func (c *Controller) unsynced() error {
	if unsynced := c.feed.Unsynced(); len(unsynced) > 0 {
		return fmt.Errorf("not observed yet: %s", fewOf(unsynced))
	}
	return nil
}
