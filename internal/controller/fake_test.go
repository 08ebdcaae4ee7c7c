// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/election"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// world is a cluster in memory. It implements the feed and the writer.
type world struct {
	t *testing.T
	c *Controller

	// mu guards the fields that the controller's goroutines change: nodes, stale, writes, reads and
	// fullReads. Tests read them by the methods copies, node, written, readCount and fullReadCount. It
	// also guards what a test changes while a controller runs. Pass does not order what a test has done
	// before what the controller does later.
	mu          sync.Mutex
	nodes       map[string]gate.Node
	gates       []*v1alpha1.NodeGate
	complete    bool
	source      string // SourceCRD if empty
	daemonSets  []gate.DaemonSet
	observed    map[string]bool // namespaces whose DaemonSets are observed
	pods        boundpods.Client
	writer      write.Applier                // the world itself if nil
	clock       clock.WithTicker             // the bubble's if nil
	unsynced    bool                         // nodes are being listed again
	syncsOnRead bool                         // the list completes directly after the next read of facts
	feeds       []reflector.Status           // of ResourceSlices; the name is the driver
	agents      map[gate.PodQuery][]gate.Pod // of every node
	writes      []string
	reads       int // number of reads of facts
	fullReads   int // number of reads of all facts
	// reading, if set, is called before the facts about a node are read.
	reading func(node string)
	// stale has outdated nodes, which the feed returns instead of the current ones.
	stale      map[string]gate.Node
	rewinds    atomic.Int64
	refreshErr error // result of Refresh
	catchUpErr error // result of CatchUp
	// catchUpNodes, if set, implements CatchUpNodes.
	catchUpNodes func(context.Context) error
	// hasGate is what CatchUp was called with.
	hasGate func(*v1alpha1.NodeGate) bool
	// fail, if set, is called before a write, and may return the write's error. after, if
	// set, is called after a write, with the lock held.
	fail  func(node string) error
	after func()
	// compile compiles gates; nil means signal.Compile.
	compile func(*v1alpha1.NodeGate, string) (gate.Gate, error)
	// giveUpLease is the option of this name. tookOver makes the controller start as the
	// successor of another leader.
	giveUpLease bool
	tookOver    bool
	// standBy, if set, is called before the controller leads, while it follows gates.
	standBy func()
	// before, if set, is the Controller of the replica's previous term.
	before *Controller
	// allowedKeys is the option AllowedTaintKeys.
	allowedKeys []string
	// by specifies what closes gates at birth; empty means the policy.
	by admission.Birth
	// unsyncedFeeds and received, if set, implement Unsynced and LastReceived.
	unsyncedFeeds func() []string
	received      func() time.Time
	// ended receives the result of Start.
	ended <-chan error
}

func newWorld(t *testing.T, gates ...*v1alpha1.NodeGate) *world {
	return &world{t: t, nodes: map[string]gate.Node{}, gates: gates, complete: true}
}

// add adds nodes that were created an hour ago.
func (w *world) add(n int, change func(i int, node *gate.Node)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		name := fmt.Sprintf("n%04d", i)
		node := gate.Node{
			Name: name, UID: types.UID("uid-of-" + name), Created: time.Now().Add(-time.Hour), BootID: "boot",
			Labels: map[string]string{"fit": ""}, Records: map[string]string{},
			Conditions: []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue}},
		}
		change(i, &node)
		w.nodes[name] = node
	}
}

// isOpen and isClosed set a gate's record on a node, written ten minutes ago.
func isOpen(node *gate.Node, gateName string) {
	node.Records[gateName] = gate.Record{
		State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Since: time.Now().Add(-10 * time.Minute),
		Boot: "boot", Taint: controllertest.TaintKey + ":NoSchedule", Source: v1alpha1.SourceCRD,
	}.String()
}

func isClosed(node *gate.Node, gateName string, reason v1alpha1.Reason) {
	node.Records[gateName] = gate.Record{
		State: v1alpha1.StateClosed, Reason: reason, Since: time.Now().Add(-10 * time.Minute),
		Boot: "boot", Taint: controllertest.TaintKey + ":NoSchedule", Source: v1alpha1.SourceCRD,
	}.String()
	node.Taints = []corev1.Taint{{Key: controllertest.TaintKey, Effect: corev1.TaintEffectNoSchedule}}
}

// change changes a node, and reports that everything may have changed.
func (w *world) change(name string, change func(*gate.Node)) {
	w.edit(name, gate.Everything(), change)
}

func (w *world) remove(name string) {
	w.mu.Lock()
	delete(w.nodes, name)
	w.mu.Unlock()
}

// closed returns the number of nodes with the taint.
func (w *world) closed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.countClosed()
}

func (w *world) countClosed() (n int) {
	for _, node := range w.nodes {
		n += len(node.Taints)
	}
	return n
}

// node returns a node, which must not be changed, or the zero Node.
func (w *world) node(name string) gate.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[name]
}

// copies returns all nodes by name. They must not be changed.
func (w *world) copies() map[string]gate.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.nodes)
}

func (w *world) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes)
}

func (w *world) readCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

func (w *world) fullReadCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fullReads
}

// writesFrom returns the nodes of all writes after the first n.
func (w *world) writesFrom(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes[n:])
}

// Apply implements write.Applier.
func (w *world) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	w.mu.Lock()
	fail := w.fail
	w.mu.Unlock()
	if fail != nil {
		if err := fail(n.Name); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	node, ok := w.nodes[n.Name]
	if !ok {
		return nil, write.ErrGone
	}
	if conflicts(n, &node, d) {
		return nil, fmt.Errorf("patching: %w", write.ErrConflict)
	}
	if !slices.Equal(n.Taints, d.Taints) {
		node.Taints = d.Taints
	}
	node.Records = maps.Clone(node.Records)
	for name, record := range d.Records {
		node.Records[name] = record
		if record == "" {
			delete(node.Records, name)
		}
	}
	for name := range d.Withdrawn {
		node.Overrides = maps.Clone(node.Overrides)
		delete(node.Overrides, name)
	}
	w.applyConditions(&node, d)
	w.nodes[n.Name] = node
	delete(w.stale, n.Name) // a response contains the node
	w.writes = append(w.writes, n.Name)
	if w.after != nil {
		w.after()
	}
	return nil, ctx.Err()
}

// conflicts reports whether the patch of a decision about a node tests something that has changed.
func conflicts(n, now *gate.Node, d *gate.Decision) bool {
	for name := range d.Records {
		override, overridden := n.Overrides[name]
		if n.Records[name] != now.Records[name] || overridden && override != now.Overrides[name] {
			return true
		}
	}
	for name := range d.Withdrawn {
		if n.Overrides[name] != now.Overrides[name] {
			return true
		}
	}
	return !slices.Equal(n.Taints, d.Taints) && !slices.Equal(n.Taints, now.Taints)
}

// applyConditions writes conditions, which the API server does only if nothing else changes.
func (w *world) applyConditions(node *gate.Node, d *gate.Decision) {
	if d.Changes {
		return
	}
	for name, c := range d.Conditions {
		node.Conditions = slices.DeleteFunc(slices.Clone(node.Conditions), func(c gate.Condition) bool { return c.Type == v1alpha1.DeadlineConditionPrefix+name })
		if c != nil {
			node.Conditions = append(node.Conditions, gate.Condition{Type: string(c.Type), Status: c.Status, Transition: c.LastTransitionTime.Time})
		}
	}
}

// Facts implements NodeFeed.
func (w *world) Facts(node string) (gate.Facts, bool) {
	if w.reading != nil {
		w.reading(node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fullReads++
	return w.facts(node)
}

func (w *world) facts(node string) (gate.Facts, bool) {
	w.reads++
	n, ok := w.nodes[node]
	if before, isStale := w.stale[node]; isStale {
		n, ok = before, true
	}
	known := ok && !w.unsynced
	if w.syncsOnRead {
		w.unsynced, w.syncsOnRead = false, false
	}
	return gate.Facts{Node: n, Zone: gate.Zone{Nodes: len(w.nodes)}, Pods: w.agents, DaemonSets: &gate.DaemonSets{Items: w.daemonSets, Observed: w.observed}}, known
}

// FactsOf implements NodeFeed. It returns only the pods that the needs require.
func (w *world) FactsOf(node string, n *gate.Needs) (gate.Facts, bool) {
	if w.reading != nil {
		w.reading(node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	facts, ok := w.facts(node)
	facts.Pods = maps.Clone(facts.Pods)
	maps.DeleteFunc(facts.Pods, func(q gate.PodQuery, _ []gate.Pod) bool { return !slices.Contains(n.Pods, q) })
	return facts, ok
}

// NodesSynced implements NodeFeed.
func (w *world) NodesSynced() bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.unsynced }

// Rewinds implements NodeFeed.
func (w *world) Rewinds() int64 { return w.rewinds.Load() }

// CatchUpNodes implements NodeFeed.
func (w *world) CatchUpNodes(ctx context.Context) error {
	if w.catchUpNodes == nil {
		return nil
	}
	return w.catchUpNodes(ctx)
}

func (w *world) setUnsynced(unsynced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsynced = unsynced
}

// Gone implements NodeFeed.
func (w *world) Gone(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, known := w.nodes[node]
	return !known && !w.unsynced
}

// NodeNames implements NodeFeed.
func (w *world) NodeNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.nodes))
}

// SameBoot implements NodeFeed.
func (w *world) SameBoot() []string { return nil }

// Gates implements GateFeed.
func (w *world) Gates() ([]*v1alpha1.NodeGate, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gates), w.complete
}

// setGates replaces the gates, and reports it.
func (w *world) setGates(complete bool, gates ...*v1alpha1.NodeGate) {
	w.mu.Lock()
	w.gates, w.complete = gates, complete
	w.mu.Unlock()
	w.storeGates(complete, gates)
	w.c.GatesChanged()
}

// storeGates makes the API server's gates the ones that are observed. Those with the same UID keep
// their statuses.
func (w *world) storeGates(complete bool, gates []*v1alpha1.NodeGate) {
	w.t.Helper()
	api, ctx := w.c.client, context.Background()
	var stored v1alpha1.NodeGateList
	err := api.List(ctx, &stored)
	for i := range stored.Items {
		old := &stored.Items[i]
		at := slices.IndexFunc(gates, func(ng *v1alpha1.NodeGate) bool { return ng.Name == old.Name && ng.UID == old.UID })
		switch {
		case at >= 0 && gates[at].ReadError == "":
			ng := gates[at].DeepCopy()
			ng.ResourceVersion, ng.Status = old.ResourceVersion, old.Status
			err = errors.Join(err, api.Update(ctx, ng))
		case at < 0 && complete:
			err = errors.Join(err, api.Delete(ctx, old))
		}
	}
	for _, ng := range gates {
		if !slices.ContainsFunc(stored.Items, func(old v1alpha1.NodeGate) bool { return ng.Name == old.Name && ng.UID == old.UID }) {
			ng = ng.DeepCopy()
			ng.ResourceVersion = ""
			err = errors.Join(err, api.Create(ctx, ng))
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// DaemonSets implements NeedsFeed.
func (w *world) DaemonSets() *gate.DaemonSets {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &gate.DaemonSets{Items: w.daemonSets, Observed: w.observed}
}

// GatesFrom implements GateFeed.
func (w *world) GatesFrom() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.source, v1alpha1.SourceCRD)
}

func (w *world) DeletedGates() map[string]bool { return nil }
func (w *world) GatesError() error             { return nil }

// CatchUp implements GateFeed.
func (w *world) CatchUp(_ context.Context, has func(*v1alpha1.NodeGate) bool) error {
	w.hasGate = has
	return w.catchUpErr
}

func (w *world) SetNeeds(gate.Needs) {}
func (w *world) Unsynced() []string {
	if w.unsyncedFeeds == nil {
		return nil
	}
	return w.unsyncedFeeds()
}
func (w *world) LastReceived() time.Time {
	if w.received == nil {
		return time.Time{}
	}
	return w.received()
}
func (w *world) StatusOf(n gate.Needs) []reflector.Status {
	return slices.DeleteFunc(slices.Clone(w.feeds), func(s reflector.Status) bool { return !slices.Contains(n.ResourceSlices, s.Name) })
}
func (w *world) Observe(*corev1.Node) {}

// Refresh implements NodeFeed.
func (w *world) Refresh(_ context.Context, node string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refreshErr == nil {
		delete(w.stale, node)
	}
	return w.refreshErr
}

// start starts a controller, and returns a function that stops it. It must be called in a
// synctest bubble.
func (w *world) start(log logr.Logger, funcs interceptor.Funcs) (stop func()) {
	w.t.Helper()
	end := w.startWithCause(log, funcs)
	return func() { end(nil) }
}

// startWithCause is like start. The controller's context ends with the cause that is passed to stop.
func (w *world) startWithCause(log logr.Logger, funcs interceptor.Funcs) (stop func(cause error)) {
	w.t.Helper()
	var objects []client.Object
	for _, ng := range w.gates {
		objects = append(objects, ng.DeepCopy())
	}
	api := controllertest.Client(w.t, funcs, objects...)
	w.c = New(Options{
		Namespace: "nodegate-system", Log: log, Clock: w.clock, GiveUpLease: w.giveUpLease, AllowedTaintKeys: w.allowedKeys,
		LeaseDuration: election.DefaultDuration,
	}, api, telemetry.NewMetrics(prometheus.NewRegistry()))
	w.c.Attach(w, w.applier(), w.pods)
	w.c.birth.By = w.by
	if w.compile != nil {
		w.c.compiler.Compile = w.compile
	}
	if w.before != nil {
		w.c.succeed(w.before)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var running sync.WaitGroup
	c := w.c // a test may start another controller before it stops this one
	running.Go(func() { c.Follow(ctx) })
	ended := make(chan error, 1)
	w.ended = ended
	c.GatesChanged()
	if w.standBy != nil {
		w.standBy()
	}
	first := !w.tookOver
	running.Go(func() { ended <- c.lead(ctx, first) })
	var once sync.Once
	return func(cause error) {
		once.Do(func() {
			cancel(cause)
			running.Wait()
			c.queue.ShutDown()
		})
	}
}

func (w *world) applier() write.Applier {
	if w.writer != nil {
		return w.writer
	}
	return w
}

func newTestMetrics() *telemetry.Metrics { return telemetry.NewMetrics(prometheus.NewRegistry()) }
