// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// GuardProber probes whether the guards are in force. Gates work without guards, so
// nothing waits for it.
type GuardProber struct {
	client    client.Client
	namespace string
	log       logr.Logger
	metrics   *telemetry.Metrics

	mu     sync.Mutex
	states map[string]guardState
}

// guardState is the state of one guard.
type guardState struct {
	// err is why the guard is not known to be in force, or nil if it is.
	err error
	// tries counts consecutive unsuccessful probes.
	tries int
	// at is the time of the last probe that showed whether the guard is in force.
	at time.Time
}

// NewGuardProber returns a GuardProber for the guards of nodegate's namespace.
func NewGuardProber(c client.Client, namespace string, log logr.Logger, m *telemetry.Metrics) *GuardProber {
	return &GuardProber{client: c, namespace: namespace, log: log, metrics: m, states: map[string]guardState{}}
}

// Run probes until the context ends. nodes and gates list the names of Nodes and
// NodeGates.
func (g *GuardProber) Run(ctx context.Context, clk clock.WithTicker, nodes, gates func() []string) {
	timer := clk.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		timer.Reset(g.probe(ctx, clk, oneOf(nodes()), oneOf(gates())))
	}
}

// oneOf returns one of the names, or "" if there is none.
func oneOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[rand.IntN(len(names))]
}

// probe probes all guards and returns the time after which to probe them again. That is
// longer after slow probes, so that a busy API server gets fewer.
func (g *GuardProber) probe(ctx context.Context, clk clock.PassiveClock, node, gate string) time.Duration {
	began := clk.Now()
	probes := admission.GuardProbes(g.namespace, node, gate)
	g.keep(probes)
	for _, p := range probes {
		err := p.Proved(g.send(ctx, &p))
		if ctx.Err() != nil {
			break
		}
		g.note(p.Guard, err, clk.Now())
	}
	return max(g.next(), min(clk.Since(began)*birthSlower, guardsSlow))
}

// send returns the API server's response to a probe.
func (g *GuardProber) send(ctx context.Context, p *admission.GuardProbe) error {
	ctx, cancel := context.WithTimeout(ctx, birthTimeout)
	defer cancel()
	return p.Send(ctx, g.client)
}

// keep forgets the guards without a probe.
func (g *GuardProber) keep(probes []admission.GuardProbe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for guard := range g.states {
		if !slices.ContainsFunc(probes, func(p admission.GuardProbe) bool { return p.Guard == guard }) {
			g.forget(guard)
		}
	}
}

// forget removes what is known about a guard. The caller must hold g.mu.
func (g *GuardProber) forget(guard string) {
	delete(g.states, guard)
	g.metrics.GuardUnknown(guard)
}

// note records the result of a probe. A result that shows nothing is ignored, but if there
// are no others for some time, the guard no longer counts as proved.
func (g *GuardProber) note(guard string, err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	state, known := g.states[guard]
	if errors.Is(err, admission.ErrUnclear) {
		if state.tries < guardTries && now.Sub(state.at) > guardsOutdated {
			g.forget(guard)
		}
		return
	}
	before := state.tries
	state.at = now
	if state.err = err; err == nil {
		state.tries = 0
	} else {
		state.tries++
	}
	g.states[guard] = state
	if state.tries == 0 || state.tries >= guardTries {
		g.metrics.GuardProved(guard, err == nil)
	}
	if state.tries == guardTries {
		g.log.Info("guard is not in force", "guard", guard, "reason", err.Error())
	} else if err == nil && (!known || before >= guardTries) {
		g.log.Info("guard is in force", "guard", guard)
	}
}

// next returns the time until the next probes.
func (g *GuardProber) next() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := wait.Jitter(guardsProved*4/5, 0.25)
	for _, state := range g.states {
		switch {
		case state.tries >= guardsHasty:
			next = min(next, guardsLater)
		case state.tries > 0:
			next = guardsSoon
		}
	}
	return next
}

// Missing returns the problems of guards that are not in force, or "".
func (g *GuardProber) Missing() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, state := range g.states {
		if state.tries >= guardTries {
			all = append(all, state.err.Error())
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
