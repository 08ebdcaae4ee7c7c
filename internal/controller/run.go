// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
)

// Process is how a process that runs a controller is set up.
type Process struct {
	// Config is the API server and the identity. Required.
	Config *rest.Config
	// MetricsAddress and HealthAddress are where to listen; "0" for nowhere.
	MetricsAddress, HealthAddress string
	// ProfileAddress is where to serve net/http/pprof; "" or "0" for nowhere.
	ProfileAddress string
	// LeaderElect lets one replica at a time do the work.
	LeaderElect bool
	// Gates is where NodeGates come from. Default: the API server.
	Gates cluster.GateSource
	// Registerer takes the metrics. Default: the registry that is served at
	// MetricsAddress.
	Registerer prometheus.Registerer
	// Webhook has the process serve the webhook that closes gates at birth. Nil
	// where the API server does that by policy.
	Webhook *Webhook
	// Options are the controller's own.
	Options Options
}

// Client returns a client for what the controller does besides watching and
// patching nodes. It reads from the API server, not from a cache.
func (p *Process) Client() (client.Client, error) {
	scheme, err := sharedScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(p.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building client: %w", err)
	}
	return c, nil
}

// sharedScheme is the one scheme of the process: each takes half a megabyte. It is
// read only.
var sharedScheme = sync.OnceValues(newScheme)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	return scheme, nil
}

// Run runs a controller until the context ends; then it finishes what is in
// hand and gives the lease back.
func (p *Process) Run(ctx context.Context) error {
	scheme, err := sharedScheme()
	if err != nil {
		return err
	}
	m, err := ctrl.NewManager(p.Config, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        p.Options.Log,
		Metrics:                       metricsserver.Options{BindAddress: p.MetricsAddress},
		HealthProbeBindAddress:        p.HealthAddress,
		PprofBindAddress:              p.ProfileAddress,
		LeaderElection:                p.LeaderElect,
		LeaderElectionID:              v1alpha1.LeaseName,
		LeaderElectionNamespace:       p.Options.Namespace,
		LeaderElectionReleaseOnCancel: true, // safe, as the process ends with the manager
	})
	if err != nil {
		return fmt.Errorf("building manager: %w", err)
	}
	if err := p.assemble(m); err != nil {
		return fmt.Errorf("assembling controller: %w", err)
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("running controller: %w", err)
	}
	return nil
}

// assemble wires feed, writer and controller into the manager.
func (p *Process) assemble(m manager.Manager) error {
	api, err := p.Client()
	if err != nil {
		return err
	}
	if p.Registerer == nil {
		p.Registerer = ctrlmetrics.Registry
	}
	c := New(p.Options, api, NewMetrics(p.Registerer))
	feed, err := cluster.New(cluster.Options{Config: p.Config, Handler: c, Log: p.Options.Log, Clock: p.Options.Clock, Gates: p.Gates})
	if err != nil {
		return err
	}
	writer, err := cluster.NewWriter(p.Config)
	if err != nil {
		return err
	}
	pods, err := cluster.NewNodePods(p.Config)
	if err != nil {
		return err
	}
	c.Attach(feed, writer, pods)
	if p.Webhook != nil {
		if err := p.serveWebhook(m, c, api); err != nil {
			return err
		}
	}
	return errors.Join(
		serveAnswers(m, c),
		m.Add(everywhere(feed.Run)),
		m.Add(everywhere(c.Follow)),
		m.Add(inLeader(c.Start)),
		m.AddReadyzCheck("feeds", check(c.Ready)),
		m.AddHealthzCheck("loop", check(c.Live)),
	)
}

func check(f func() error) healthz.Checker {
	return func(*http.Request) error { return f() }
}

// everywhere runs in every replica.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// inLeader runs in the replica that leads.
type inLeader func(context.Context) error

// Start implements manager.Runnable.
func (f inLeader) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (inLeader) NeedLeaderElection() bool { return true }
