// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/birth"
	"github.com/nodegate/nodegate/internal/bypass"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// Feed provides everything that the controller observes. It is implemented by feed.Feed.
type Feed interface {
	NodeFeed
	GateFeed
	NeedsFeed
}

// NodeFeed provides facts about nodes.
type NodeFeed interface {
	// Facts returns all facts about a node; false if the node is not known.
	Facts(node string) (gate.Facts, bool)
	// FactsOf returns only the facts that the needs require.
	FactsOf(node string, n *gate.Needs) (gate.Facts, bool)
	// NodesSynced reports whether the cache of nodes is synced. Otherwise, no node is
	// known.
	NodesSynced() bool
	// Gone reports whether the cache of nodes is synced and does not contain the node.
	Gone(node string) bool
	// NodeNames returns the names of all nodes.
	NodeNames() []string
	// SameBoot returns the names of nodes that have the boot ID of another node.
	SameBoot() []string
	// Observe stores a node that the API server has just returned.
	Observe(*corev1.Node)
	// Refresh reads a node from the API server, and stores the result or that the node
	// does not exist.
	Refresh(ctx context.Context, node string) error
}

// GateFeed provides the gates.
type GateFeed interface {
	// GatesFrom returns the source of the gates, as records name it.
	GatesFrom() string
	// Gates returns the known gates, and whether the list is complete.
	Gates() ([]*v1alpha1.NodeGate, bool)
	// DeletedGates returns the names of gates that are known to have been deleted, even if
	// the list is not complete.
	DeletedGates() map[string]bool
	// GatesError returns the error that prevents reading the gates, or nil.
	GatesError() error
}

// NeedsFeed observes what the gates need.
type NeedsFeed interface {
	// SetNeeds sets what must be observed.
	SetNeeds(gate.Needs)
	// Unsynced returns the names of feeds that are not synced.
	Unsynced() []string
	// StatusOf returns the status of every feed that the needs require.
	StatusOf(gate.Needs) []reflector.Status
	// DaemonSets returns the observed DaemonSets.
	DaemonSets() *gate.DaemonSets
}

// Options configures a Controller. The zero value of a field selects a default, except
// for required fields.
type Options struct {
	// Namespace is nodegate's own namespace. Required.
	Namespace string
	// AllowedTaintKeys contains the allowed taints, each as key:Effect, or key for NoSchedule.
	// Nil allows all; the confinement policy may then deny some.
	AllowedTaintKeys []string
	// AllowedStampAnnotations contains the keys that gates may use as openedAtAnnotation.
	AllowedStampAnnotations []string
	// PlainOptOut enables the opt-out label that kubelets can set.
	PlainOptOut bool
	// TransientTaintPrefixes contains key prefixes of further transient taints.
	TransientTaintPrefixes []string
	// Workers is the number of nodes that are processed concurrently. Defaults to 16.
	Workers int
	// GiveUpLease makes Start return when patches have received no response for a while,
	// so that another replica can become the leader.
	GiveUpLease bool
	// Clock defaults to the real clock.
	Clock clock.WithTicker
	// Log receives one line for each transition.
	Log logr.Logger
}

// Controller decides about nodes and carries out the decisions.
type Controller struct {
	options Options
	allowed gate.AllowedTaints
	stamps  map[string]bool
	clock   clock.WithTicker
	log     logr.Logger

	nodeFeed    NodeFeed
	gateFeed    GateFeed
	needsFeed   NeedsFeed
	writer      write.Applier
	client      client.Client
	set         atomic.Pointer[gateset.Set]
	needs       atomic.Pointer[gate.Needs] // the needs that were last passed to the feed
	order       *laneQueue
	queue       workqueue.TypedRateLimitingInterface[string]
	resync      *resyncer
	nodes       *nodeStates
	ledger      *fleet.Ledger
	groups      *fleet.Groups
	budget      *fleet.Reservations
	metrics     *telemetry.Metrics
	birth       *birth.Reconciler
	guards      *birth.GuardProber
	rules       *readinessRules
	permissions *permissions
	events      *telemetry.Recorder
	liveness    liveness
	responses   responses
	leading     atomic.Bool

	// Components that need lists of all pods of a node. bypass is nil until Start.
	pods      *bypass.PodLister
	inspector *bypass.Inspector
	bypass    *bypass.Handler

	compiler *gateset.Compiler

	// gatesChanged signals a change of gates or DaemonSets.
	gatesChanged chan struct{}

	// budgetsFrom is the earliest time at which budget may be granted; zero for no delay.
	budgetsFrom time.Time
}

// New returns a Controller. Attach must be called before Start.
func New(o Options, api client.WithWatch, m *telemetry.Metrics) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Workers == 0 {
		o.Workers = 16
	}
	c := &Controller{
		options: o, clock: o.Clock, log: o.Log, client: api, metrics: m,
		ledger: fleet.NewLedger(), groups: fleet.NewGroups(), nodes: newNodeStates(),
		gatesChanged: make(chan struct{}, 1),
		order:        newLaneQueue(),
	}
	c.queue = newNodeQueue(&o, c.order)
	if o.AllowedTaintKeys != nil {
		c.allowed, _ = gate.ParseAllowedTaints(o.AllowedTaintKeys) // the command line was validated; an invalid key allows nothing
	}
	c.stamps = setOf(o.AllowedStampAnnotations)
	c.resync = newResyncer(c.queue, o.Workers)
	c.budget = fleet.NewReservations(c.ledger)
	c.birth = birth.New(api, o.Namespace, o.Log)
	c.compiler = gateset.NewCompiler(c.GatesChanged)
	c.guards = birth.NewGuardProber(api, o.Namespace, o.Log, m)
	c.rules = newReadinessRules(api, o.Clock, o.Log)
	c.permissions = newPermissions(api, o.Log)
	c.events = telemetry.NewRecorder(api, o.Clock, o.Log, m)
	c.set.Store(&gateset.Set{})
	return c
}

func setOf(keys []string) map[string]bool {
	set := make(map[string]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set
}

// Attach sets the feed, whose handler is the Controller, the writer, and the client for
// all pods of a node.
func (c *Controller) Attach(f Feed, w write.Applier, p boundpods.Client) {
	c.nodeFeed, c.gateFeed, c.needsFeed, c.writer = f, f, f, w
	c.pods = bypass.NewPodLister(p, c.clock)
	c.inspector = bypass.NewInspector(c.pods, func(node string) { c.NodeChanged(node, gate.Everything()) }, c.log)
}

// NodeChanged implements feed.Handler. A replica that is not the leader ignores it,
// because it evaluates all nodes when it becomes the leader.
func (c *Controller) NodeChanged(name string, change gate.Change) {
	if c.leading.Load() {
		c.nodes.addChange(name, change)
		c.order.markChanged(name)
		c.queue.Add(name)
	}
}

// GatesChanged implements feed.Handler.
func (c *Controller) GatesChanged() {
	select {
	case c.gatesChanged <- struct{}{}:
	default: // already signaled
	}
}

// refreshDelay is the minimum time between two compilations, so that a burst of changes
// causes few of them.
const refreshDelay = 100 * time.Millisecond

// refreshInterval is the period of the resync, which compiles the gates and enqueues all
// nodes even if nothing has changed. It repairs missed events. Reconciling 5,000 nodes
// takes a fifth of a second of CPU time.
const refreshInterval = 10 * time.Minute

// Follow keeps the compiled gates, and what is observed for them, up to date. It runs in
// every replica, so that a standby has the same facts as the leader.
func (c *Controller) Follow(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.compiler.Run(ctx) })
	running.Go(func() { c.rules.watch(ctx) })
	ticker := c.clock.NewTicker(rulesInterval)
	defer ticker.Stop()
	var refreshed time.Time
	var before map[string]string
	for {
		due := true
		select {
		case <-ctx.Done():
			return
		case <-c.gatesChanged:
		case <-c.rules.changed:
			due = c.clock.Since(refreshed) >= refreshInterval
		case <-ticker.C():
			due = c.clock.Since(refreshed) >= refreshInterval
		}
		gap := refreshDelay
		switch managed, known := c.rules.managed(ctx); {
		case !known:
			gap = rulesRetry
			c.GatesChanged() // they must still be compiled
		case !due && maps.Equal(managed, before):
			continue
		default:
			refreshed, before = c.clock.Now(), managed
			c.refreshGates(managed)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.clock.After(gap):
		}
	}
}

// refreshGates compiles the gates and triggers an evaluation of all nodes. managed has
// the rules that manage taints, by key.
func (c *Controller) refreshGates(managed map[string]string) {
	policy := gate.KeyPolicy{Allowed: c.allowed, Stamps: c.stamps, PlainOptOut: c.options.PlainOptOut, Managed: managed}
	if same := fleet.NewNameList(c.nodeFeed.SameBoot()); same.Count > 0 {
		policy.SameBoot = same.String()
	}
	declared, complete := c.gateFeed.Gates()
	compile, begin := c.compiler.Next()
	known := gateset.Snapshot{Source: c.gateFeed.GatesFrom(), Gates: declared, Complete: complete, Deleted: c.gateFeed.DeletedGates(), Compile: compile}
	set := gateset.New(c.set.Load(), known, policy)
	begin()
	daemonSets := c.needsFeed.DaemonSets()
	needs := set.Needs(daemonSets)
	set.Parts = gate.Divide(set.Gates, daemonSets)
	c.needsFeed.SetNeeds(needs)
	c.needs.Store(&needs)
	c.metrics.KeepGates(set.Signals())
	c.metrics.GatesKnown(complete)
	c.ledger.SetTerms(termsOf(set))
	c.groups.Keep(set.Together)
	c.set.Store(set)
	c.birth.Changed()
	if c.leading.Load() {
		c.resyncAll()
	}
}

// resyncAll enqueues all nodes: those that exist, and those in the ledgers, which may have
// been deleted.
func (c *Controller) resyncAll() {
	c.resync.add(slices.Concat(c.nodeFeed.NodeNames(), c.ledger.Names(), c.groups.Names()))
}

// Start runs the leader until the context ends, and then completes the work in progress.
// If the leader cannot continue (see watchdog), Start returns an error and abandons work
// that hangs.
func (c *Controller) Start(ctx context.Context) error {
	defer c.queue.ShutDown()
	if !c.awaitFeeds(ctx) {
		return nil
	}
	c.bypass = bypass.New(bypass.Options{
		Pods: c.pods, Gates: c.set.Load, Facts: c.nodeFeed.Facts,
		MayList:  func() bool { return !c.permissions.missing(listPods) },
		MayEvict: func() bool { return !c.permissions.missing(evictPods) },
		Events:   c.events, Metrics: c.metrics, Log: c.log, Clock: c.clock,
	})
	c.leading.Store(true)
	defer c.leading.Store(false)
	c.responses = responses{}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var running sync.WaitGroup
	workers := make([]workerState, c.options.Workers)
	for i := range workers {
		running.Go(func() { c.work(ctx, &workers[i]) })
	}
	running.Go(func() { c.watchdog(ctx, workers, giveUp) })
	running.Go(func() { c.resync.run(ctx) })
	running.Go(func() { c.runBudget(ctx) })
	running.Go(func() { c.newReporter().run(ctx) })
	running.Go(func() { c.birth.Run(ctx, c.clock, &c.set) })
	running.Go(func() {
		c.guards.Run(ctx, c.clock, c.nodeFeed.NodeNames, func() []string { return c.set.Load().Objects() })
	})
	running.Go(func() { c.watchPermissions(ctx) })
	running.Go(func() { c.inspector.Run(ctx) })
	running.Go(func() { c.bypass.Run(ctx) })
	running.Go(func() { c.events.Run(ctx) })
	c.resyncAll()
	<-ctx.Done()
	c.queue.ShutDown()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	running.Wait()
	return nil
}

// feedTimeout limits the wait for feeds before the first decision. Signals of a feed that
// never syncs are unknown; the other gates must work.
const feedTimeout = 30 * time.Second

// awaitFeeds waits until the controller is ready or feedTimeout has passed. It returns
// false if the context ends first.
func (c *Controller) awaitFeeds(ctx context.Context) bool {
	timeout := c.clock.NewTimer(feedTimeout)
	defer timeout.Stop()
	ticker := c.clock.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for c.Ready() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-timeout.C():
			c.log.Info("starting although some feeds are not synced", "unsynced", c.needsFeed.Unsynced())
			return true
		case <-ticker.C():
		}
	}
	return true
}

// takeOver is called before Start if the previous leader did not release the Lease. It
// may have been paused, and close nodes under a budget until it notices (see
// fleet.Ledger.Heartbeat), or may complete its work in progress. Until then the number of
// closed nodes is unknown.
func (c *Controller) takeOver() {
	c.budgetsFrom = c.clock.Now().Add(fleet.PausedAfter + fleet.SettleInterval)
}

// runBudget enables the budget when the state of the whole fleet is known. Then it
// enqueues queued nodes, as many as the budget allows, through the resyncer, so that they
// do not delay new work.
func (c *Controller) runBudget(ctx context.Context) {
	ticker := c.clock.NewTicker(fleet.SettleInterval)
	defer ticker.Stop()
	for {
		if c.ledger.Heartbeat(c.clock.Now()) {
			c.log.Info("process was paused, reconciling all nodes before granting budget")
			c.resyncAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if c.nodeFeed.NodesSynced() && !c.clock.Now().Before(c.budgetsFrom) {
			if seq := c.set.Load().Seq; !c.ledger.IsSettledFor(seq) {
				c.ledger.Settle(c.nodeFeed.NodeNames(), seq)
			}
			c.resync.add(append(c.ledger.Due(), c.groups.Outdated()...))
		}
	}
}

// Ready is a readiness check. It returns nil if the gates are known, and everything that
// they need is observed.
func (c *Controller) Ready() error {
	if err := c.unsynced(); err != nil {
		return err
	}
	set := c.set.Load()
	if set.Seq == 0 {
		return errors.New("the gates have not been compiled yet")
	}
	// The pods of DaemonSets that have just been read are not watched yet.
	if !reflect.DeepEqual(*c.needs.Load(), set.Needs(c.needsFeed.DaemonSets())) {
		return errors.New("the pods of the gates' DaemonSets are not watched yet")
	}
	return c.unsynced() // the needs may have changed just now
}

func (c *Controller) unsynced() error {
	if unsynced := c.needsFeed.Unsynced(); len(unsynced) > 0 {
		return fmt.Errorf("not observed yet: %s", fleet.NewNameList(unsynced))
	}
	return nil
}
