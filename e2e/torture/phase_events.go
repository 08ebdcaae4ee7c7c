// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

// lateBy is the delay of a late event. It is shorter than the boot of a machine.
const lateBy = time.Second

// dropped is the maximum time for which a dropped event hides a fact, until the same
// object is written again.
const dropped = time.Minute

// eventFaults are the faults from which nodegate must recover without further events.
var eventFaults = []faultproxy.Fault{
	faultproxy.EventLost, faultproxy.EventDoubled, faultproxy.EventLate, faultproxy.EventSwapped, faultproxy.EventError,
}

// singleEvents performs the same sequence of changes on each node, and injects one fault
// into one of its events: node i represents one event and one fault. No later event
// repairs the damage. For the rest of the time, a quarter of all events get a fault under
// churn, and a few of them are dropped without an error.
func singleEvents(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	story := &targets{fleet: s.fleet, seen: make(map[string]int)}
	r.proxy.Follow(faultproxy.Plan{Event: story.fault})
	// Only a few nodes at a time, because a broken watch also misses events of other nodes.
	if err := s.fleet.each(func(n *node) error { return n.performSequence(ctx) }); err != nil {
		return err
	}
	if err := s.fleet.awaitOpen(ctx, "agent", "net", "disk"); err != nil {
		return fmt.Errorf("after a fault in one event of each sequence: %w", err)
	}
	s.report.note("a sequence for each of %d nodes, with a fault in one event on %d: gates open, without help, after %s",
		len(s.fleet.nodes), story.hits(), time.Since(began).Round(time.Second))
	dice := newDice(s.Seed)
	r.proxy.Follow(faultproxy.Plan{Event: func(e faultproxy.Event) faultproxy.EventFault {
		rng := dice.event(e)
		switch n := rng.IntN(100); {
		case n < 22:
			return faultproxy.EventFault{Fault: eventFaults[n%len(eventFaults)], Wait: time.Duration(rng.Int64N(int64(lateBy)))}
		case n < 25 && e.Type != "DELETED" && e.Resource != "daemonsets": // DaemonSets are never written again
			return faultproxy.EventFault{Fault: faultproxy.EventDropped}
		}
		return faultproxy.EventFault{}
	}})
	return s.churning(ctx, max(d-time.Since(began), d/2))
}

// targets injects a fault into one event of each node.
type targets struct {
	fleet *fleet
	mu    sync.Mutex
	seen  map[string]int // events by node, including those of its pods
	hit   int
}

var ofNode = regexp.MustCompile(`n\d{4}`)

func (t *targets) fault(e faultproxy.Event) faultproxy.EventFault {
	name := ofNode.FindString(e.Name)
	i := slices.IndexFunc(t.fleet.nodes, func(n *node) bool { return n.Name == name })
	if i < 0 {
		return faultproxy.EventFault{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[name]++
	if t.seen[name] != 1+i/len(eventFaults) {
		return faultproxy.EventFault{}
	}
	t.hit++
	return faultproxy.EventFault{Fault: eventFaults[i%len(eventFaults)], Wait: lateBy}
}

// hits returns the number of nodes that got their fault.
func (t *targets) hits() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hit
}

// performSequence performs a sequence with every kind of change of a node, which ends with the node
// ready.
func (n *node) performSequence(ctx context.Context) error {
	report := func(c simnode.Conditions) func() error { return func() error { return n.Report(ctx, c) } }
	pod := func(isReady bool) func() error { return func() error { return n.reportPod(ctx, isReady) } }
	label := func(value any) func() error {
		return func() error { return n.label(ctx, map[string]any{fit: value}) }
	}
	for _, do := range []func() error{
		pod(false), report(simnode.Conditions{net: no, badDisk: yes}), label(nil),
		report(simnode.Conditions{net: yes, badDisk: no}), report(simnode.Conditions{ready: unknown}),
		func() error { return n.reboot(ctx) },
		func() error { return await.Pause(ctx, n.phase.bootTime()) },
		func() error { n.off = time.Time{}; return n.heartbeat(ctx) },
		pod(true),
		func() error { return n.kube.CoreV1().Nodes().Delete(ctx, n.Name, deleteNow) },
		func() error { _, err := n.register(ctx); return err },
		func() error { return n.kube.CoreV1().Pods(namespace).Delete(ctx, n.pod.Name, deleteNow) },
		func() error { n.nextPod(); return n.createPod(ctx) },
		pod(false), label("true"), report(simnode.Conditions{ready: yes, net: yes, badDisk: no}), pod(true),
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
