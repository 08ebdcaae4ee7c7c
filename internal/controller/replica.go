// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/access"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/election"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/kube/feed"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// replica is a process that may become the leader. It always observes, so that it has all
// facts when it is elected. It has a new Controller for each term, because a leader's
// knowledge of its own writes, of budgets and of waits is outdated after another replica
// has led.
type replica struct {
	process  *Process
	api      client.WithWatch
	metrics  *telemetry.Metrics
	feed     *feed.Feed
	writer   write.Applier
	pods     boundpods.Client
	election *election.Election // nil without leader election

	current atomic.Pointer[Controller]
	// wasReady reports whether the replica has been ready.
	wasReady atomic.Bool
}

// election returns the process's participation in the leader election. onLoss is
// election.Options.OnLoss.
func (p *Process) election(onLoss func()) (*election.Election, error) {
	identity := p.Identity
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("naming the replica: %w", err)
		}
		identity = host + "_" + string(uuid.NewUUID())
	}
	return election.New(p.Config, election.Options{
		Namespace: p.Options.Namespace, Name: v1alpha1.LeaseName, Identity: identity,
		Duration: p.LeaseDuration, OnLoss: onLoss, Log: p.Options.Log,
	})
}

// newReplica creates a replica with the feed and the writer.
func (p *Process) newReplica(api client.WithWatch) (*replica, error) {
	if p.Registerer == nil {
		p.Registerer = ctrlmetrics.Registry
	}
	r := &replica{process: p, api: api, metrics: telemetry.NewMetrics(p.Registerer)}
	watched := telemetry.NewWatches()
	var err error
	r.feed, err = feed.New(feed.Options{
		Config: p.Config, Handler: r, Log: p.Options.Log, Clock: p.Options.Clock, Gates: p.Gates, Silenced: watched.Silenced,
	})
	if err != nil {
		return nil, err
	}
	watched.Status = r.feed.Status
	p.Registerer.MustRegister(watched)
	if r.writer, err = write.NewWriter(p.Config); err != nil {
		return nil, err
	}
	if r.pods, err = boundpods.New(p.Config); err != nil {
		return nil, err
	}
	if p.LeaderElect {
		if r.election, err = p.election(r.metrics.LeaseLosses.Inc); err != nil {
			return nil, err
		}
	}
	r.newTerm()
	return r, nil
}

// addTo adds the replica to a manager, which runs it and serves its probes.
func (r *replica) addTo(m manager.Manager) error {
	return errors.Join(
		addDebugHandler(m, r.serveNode),
		m.Add(manager.RunnableFunc(r.feed.Run)),
		m.Add(manager.RunnableFunc(r.run)),
		m.AddReadyzCheck("feeds", access.Check(r.process.Options.Log, "feeds", r.Ready)),
		m.AddHealthzCheck("loop", access.Check(r.process.Options.Log, "loop", r.Live)),
	)
}

// newTerm creates the Controller of the next term, and makes it the current one.
func (r *replica) newTerm() *Controller {
	c := r.successor(r.current.Load())
	r.current.Store(c)
	return c
}

// successor returns the Controller of the next term.
func (r *replica) successor(before *Controller) *Controller {
	options := r.process.Options
	if options.GiveUpLease = r.election != nil; options.GiveUpLease {
		options.LeaseDuration = cmp.Or(r.process.LeaseDuration, election.DefaultDuration)
	}
	c := New(options, r.api, r.metrics)
	c.Attach(r.feed, r.writer, r.pods)
	if r.process.Webhook != nil {
		c.birth.By = admission.ByWebhook
	}
	if before != nil {
		c.succeed(before)
	}
	return c
}

// succeed copies two things from the Controller of the previous term, which no longer runs: the
// gates, because health probes and the webhook need them at any time, and the keys that
// NodeReadinessRules manage, because listing these may fail for longer than gates wait for the
// first list.
func (c *Controller) succeed(before *Controller) {
	c.set.Store(before.set.Load())
	c.needs.Store(before.needs.Load())
	c.rules.Succeed(before.rules)
}

// run participates in the election, and leads, repeatedly until the context ends or the
// leader cannot continue.
func (r *replica) run(ctx context.Context) error {
	for c := r.current.Load(); ; c = r.newTerm() {
		if err := r.term(ctx, c); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// term returns when the replica ceases to lead, or an error if the leader cannot
// continue.
func (r *replica) term(ctx context.Context, c *Controller) error {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	c.GatesChanged()
	following.Go(func() { c.Follow(ctx) })
	if r.election == nil {
		return c.Start(ctx)
	}
	defer r.metrics.StepDown()
	return r.election.Lead(ctx, c.lead)
}

// lead is election.Work.
func (c *Controller) lead(ctx context.Context, first bool) error {
	if !first {
		c.takeOver()
	}
	return c.Start(ctx)
}

// NodeChanged implements feed.Handler.
func (r *replica) NodeChanged(name string, change gate.Change) {
	r.current.Load().NodeChanged(name, change)
}

// GatesChanged implements feed.Handler.
func (r *replica) GatesChanged() { r.current.Load().GatesChanged() }

// Ready is a readiness check. A replica that has been ready remains ready. Otherwise, all replicas would cease
// to be endpoints of the webhook's Service while the needs of a new gate are listed, and no gate would be closed
// on new nodes.
func (r *replica) Ready() error {
	if r.wasReady.Load() {
		return nil
	}
	err := r.current.Load().Ready()
	if err == nil {
		r.wasReady.Store(true)
	}
	return err
}

// Live is a liveness check.
func (r *replica) Live() error { return r.current.Load().Live() }

func (r *replica) birthGates() ([]gate.Gate, bool) { return r.current.Load().birthGates() }

func (r *replica) serveNode(w http.ResponseWriter, q *http.Request) {
	r.current.Load().serveNode(w, q)
}
