// SPDX-License-Identifier: Apache-2.0

// Package agent runs on each node. It writes, for the plugin of the container runtime, which
// gates are closed on the node, and which of its pods wait for them. It can also announce
// shutdowns.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
	"github.com/nodegate/nodegate/internal/logind"
)

// Agent keeps the state of a node up to date.
type Agent struct {
	// Client connects to the API server.
	Client *jsonclient.Client
	// Node is the name of the node, and Boot the ID of its current boot.
	Node, Boot string
	// Uptime returns the time since the boot.
	Uptime func() time.Duration
	Store  hold.Store
	// Bus is the socket of the system bus on which logind announces shutdowns; empty if the agent
	// does not announce them on the API server.
	Bus string
	Log *slog.Logger

	// follow is logind.Follow, except in tests.
	follow func(ctx context.Context, socket, who string, announced func(ctx context.Context, shutdown bool)) error
	// announced is whether the agent has announced the shutdown that is in progress.
	announced bool
	nodes     *jsonclient.Collection[node, *node]
	pods      *jsonclient.Collection[pod, *pod]
	gates     *jsonclient.Collection[nodeGate, *nodeGate]
	changed   chan struct{}
	// began is the uptime at which an agent was first ready to write the state in this boot.
	began time.Duration
	// written is the state that was last written, without Began and Uptime.
	written *hold.State
	// failing is whether the state could not be written the last time.
	failing bool
}

// retryAfter is the time after which the agent tries again to write a state that could not be written.
const retryAfter = 5 * time.Second

// Run writes the state whenever it changes, and at least every hold.Interval, until the context
// ends. It writes nothing before it has read everything. It returns an error only if it cannot create
// the directory of the state.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.Store.Prepare(); err != nil {
		return fmt.Errorf("creating the directory of the state: %w", err)
	}
	if a.Store.PluginBoot() != a.Boot {
		a.Log.Warn("no pod is held on this node: the container runtime has not started the plugin in this boot; restart the node, or the runtime, which must have NRI enabled")
	}
	a.prepare()
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, run := range []func(context.Context){a.nodes.Run, a.pods.Run, a.gates.Run} {
		watching.Go(func() { run(ctx) })
	}
	if a.Bus != "" { // before anything has been read: the API server may be unavailable when a shutdown begins
		watching.Go(func() { a.followShutdowns(ctx) })
	}
	for !a.synced() {
		select {
		case <-a.changed:
		case <-ctx.Done():
			return nil
		}
	}
	a.begin()
	a.notify()
	a.writeChanges(ctx)
	return nil
}

func (a *Agent) synced() bool { return a.nodes.Synced() && a.pods.Synced() && a.gates.Synced() }

// begin sets began, which a former agent may have written. A state that cannot be read is that of no
// boot.
func (a *Agent) begin() {
	a.began = a.Uptime()
	if state, err := a.Store.Read(); err == nil && state.Boot == a.Boot {
		a.began = state.Began
	}
}

// writeChanges writes the state whenever it changes, and at least every hold.Interval. It continues
// if that fails, because the agent also announces shutdowns, and must withdraw that: the state
// expires.
func (a *Agent) writeChanges(ctx context.Context) {
	tick := time.NewTicker(hold.Interval)
	defer tick.Stop()
	for {
		select {
		case <-a.changed:
			if state := a.state(); !reflect.DeepEqual(state, a.written) {
				tick.Reset(a.write(state))
			}
		case <-tick.C:
			tick.Reset(a.write(a.state()))
		case <-ctx.Done():
			return
		}
	}
}

// write writes a state, unless it is nil: the state of a Node that no longer exists expires. It
// returns the time after which the state must be written again.
func (a *Agent) write(state *hold.State) time.Duration {
	if state == nil {
		return hold.Interval
	}
	now := *state
	now.Began, now.Uptime = a.began, a.Uptime()
	if err := a.Store.Write(&now); err != nil {
		if !a.failing {
			a.Log.Error("the state cannot be written yet: make the directory writable, or free space on its disk", "error", err.Error())
		}
		a.failing = true
		return retryAfter
	}
	if a.failing {
		a.Log.Info("the state is written again")
	}
	a.logGates(state)
	a.written, a.failing = state, false
	return hold.Interval
}

// prepare sets defaults and creates the collections of the node, its pods and the gates.
func (a *Agent) prepare() {
	if a.follow == nil {
		a.follow = logind.Follow
	}
	a.changed = make(chan struct{}, 1)
	a.nodes = &jsonclient.Collection[node, *node]{
		Client: a.Client, Path: nodesPath, FieldSelector: "metadata.name=" + a.Node, Changed: a.notify, Log: a.Log,
	}
	a.pods = &jsonclient.Collection[pod, *pod]{
		Client: a.Client, Path: "/api/v1/pods", FieldSelector: "spec.nodeName=" + a.Node + unfinished, Changed: a.notify, Log: a.Log,
	}
	a.gates = &jsonclient.Collection[nodeGate, *nodeGate]{
		Client: a.Client, Path: gatesPath, Changed: a.notify, Log: a.Log,
	}
}

// unfinished excludes pods that have finished: nothing starts in them, and users can create as many
// as they want for a node, because the kubelet rejects those that do not fit.
const unfinished = ",status.phase!=Failed,status.phase!=Succeeded"

// Paths of resources.
const (
	nodesPath = "/api/v1/nodes"
	gatesPath = "/apis/" + groupName + "/" + version + "/nodegates"
)

// nodePath returns the path of the Node.
func (a *Agent) nodePath() string { return nodesPath + "/" + url.PathEscape(a.Node) }

// notify requests another comparison of the state.
func (a *Agent) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// state returns the current state, or nil if the Node does not exist.
func (a *Agent) state() *hold.State {
	n := a.node()
	if n == nil {
		return nil
	}
	gates := a.gates.All()
	slices.SortFunc(gates, func(x, y *nodeGate) int { return cmp.Compare(x.Name, y.Name) })
	return stateOf(a.Boot, a.Uptime()-a.began, n, gates, a.pods.All())
}

// node returns what is kept of the Node, or nil if it does not exist.
func (a *Agent) node() *node {
	for _, n := range a.nodes.All() { // the selector selects one
		return n
	}
	return nil
}

// logGates logs the gates of a state that differ from those that were last written.
func (a *Agent) logGates(state *hold.State) {
	for _, g := range state.Gates {
		if a.written == nil || !slices.Contains(a.written.Gates, g) {
			a.Log.Info("gate changed", "gate", g.Name, "open", g.Open, "seconds", g.Seconds)
		}
	}
}
