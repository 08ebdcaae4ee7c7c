// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/birth"
	"github.com/nodegate/nodegate/internal/bypass"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/nodequeue"
	"github.com/nodegate/nodegate/internal/readinessrules"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// DefaultWorkers is the default of Options.Workers.
const DefaultWorkers = 16

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
	// Workers is the number of nodes that are processed concurrently. Defaults to DefaultWorkers.
	Workers int
	// GiveUpLease makes Start return when patches have received no response for a while,
	// so that another replica can become the leader.
	GiveUpLease bool
	// LeaseDuration is the time within which a leader notices that it has lost the Lease.
	// Zero without leader election.
	LeaseDuration time.Duration
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
	compiled    atomic.Bool                // set is not that of the previous term, or from before the takeover
	order       *nodequeue.Lanes
	queue       workqueue.TypedRateLimitingInterface[string]
	resync      *nodequeue.Resyncer
	nodes       *nodeStates
	ledger      *fleet.Ledger
	groups      *fleet.Groups
	budget      *fleet.Reservations
	metrics     *telemetry.Metrics
	birth       *birth.Reconciler
	guards      *birth.GuardProber
	rules       *readinessrules.Rules
	permissions *permissions
	events      *telemetry.Recorder
	liveness    liveness
	responses   write.Responses
	leading     atomic.Bool

	// Components that need lists of all pods of a node. bypass is nil until Start.
	pods      *bypass.PodLister
	inspector *bypass.Inspector
	bypass    *bypass.Handler

	compiler *gateset.Compiler

	// gatesChanged signals a change of gates or DaemonSets.
	gatesChanged reflector.Wake

	takeover takeover

	// budgetsFrom is the earliest time at which budget may be granted; zero for no delay.
	budgetsFrom time.Time
	lateNodes   lateNodes

	// counted is closed by noteCounted as soon as the state of the whole fleet is known.
	counted     chan struct{}
	noteCounted func()
}

// New returns a Controller. Attach must be called before Start.
func New(o Options, api client.WithWatch, m *telemetry.Metrics) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	c := &Controller{
		options: o, clock: o.Clock, log: o.Log, client: api, metrics: m,
		ledger: fleet.NewLedger(), groups: fleet.NewGroups(), nodes: newNodeStates(),
		gatesChanged: reflector.NewWake(), counted: make(chan struct{}),
		order: nodequeue.NewLanes(), lateNodes: lateNodes{wake: reflector.NewWake()},
	}
	c.noteCounted = sync.OnceFunc(func() { close(c.counted) })
	c.queue = nodequeue.New(o.Clock, c.order, retryFirst, retryMax)
	if o.AllowedTaintKeys != nil {
		c.allowed, _ = gate.ParseAllowedTaints(o.AllowedTaintKeys) // the command line was validated; an invalid key allows nothing
	}
	c.stamps = setOf(o.AllowedStampAnnotations)
	c.resync = nodequeue.NewResyncer(c.queue, o.Workers)
	c.budget = fleet.NewReservations(c.ledger)
	c.birth = birth.New(api, o.Namespace, o.Log)
	c.compiler = gateset.NewCompiler(c.GatesChanged)
	c.guards = birth.NewGuardProber(api, o.Namespace, o.Log, m)
	c.rules = readinessrules.New(api, o.Clock, o.Log)
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
		c.order.MarkChanged(name)
		c.queue.Add(name)
	}
}

// GatesChanged implements feed.Handler.
func (c *Controller) GatesChanged() { c.gatesChanged.Send() }

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
	running.Go(func() { c.rules.Run(ctx) })
	ticker := c.clock.NewTicker(readinessrules.Interval)
	defer ticker.Stop()
	var refreshed time.Time
	var before map[string]string
	for {
		due := c.awaitChange(ctx, ticker.C())
		if ctx.Err() != nil {
			return
		}
		due = due || c.clock.Since(refreshed) >= refreshInterval || c.settledSince(refreshed)
		gap := refreshDelay
		switch managed, known := c.rules.Managed(); {
		case !known:
			gap = readinessrules.Retry
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

// awaitChange waits until the gates, or the rules that manage taints, may have changed, or
// it is time to list the rules. It lists the rules, and returns whether the gates may have
// changed.
func (c *Controller) awaitChange(ctx context.Context, tick <-chan time.Time) (gates bool) {
	select {
	case <-ctx.Done():
		return false
	case <-c.gatesChanged:
		gates = true
	case <-c.rules.Changed():
	case <-tick:
	case result := <-c.rules.Listed():
		if !c.rules.Take(result) {
			return false
		}
	}
	c.rules.Request(ctx)
	return gates
}

// refreshGates compiles the gates and triggers an evaluation of all nodes. managed has
// the rules that manage taints, by key.
func (c *Controller) refreshGates(managed map[string]string) {
	c.takeover.mu.Lock()
	defer c.takeover.mu.Unlock()
	policy := gate.KeyPolicy{Allowed: c.allowed, Stamps: c.stamps, PlainOptOut: c.options.PlainOptOut, Managed: managed}
	if same := fleet.NewNameList(c.nodeFeed.SameBoot()); same.Count > 0 {
		policy.SameBoot = same.String()
	}
	declared, complete := c.gateFeed.Gates()
	complete = complete && !c.clock.Now().Before(c.takeover.settled)
	compile, begin := c.compiler.Next()
	known := gateset.Snapshot{Source: c.gateFeed.GatesFrom(), Gates: declared, Complete: complete, Deleted: c.gateFeed.DeletedGates(), At: c.clock.Now(), Compile: compile}
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
	c.compiled.Store(true)
	c.birth.Changed()
	if c.leading.Load() {
		c.resyncAll()
	}
}

// resyncAll enqueues all nodes: those that exist, and those that have a state, which may have
// been deleted.
func (c *Controller) resyncAll() {
	c.resync.Add(slices.Concat(c.nodeFeed.NodeNames(), c.nodes.names()))
}
