// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodegate/nodegate/internal/access"
	"github.com/nodegate/nodegate/internal/kube/gates"
)

// Process configures a process that runs a controller.
type Process struct {
	// Config is the client configuration for the API server. Required.
	Config *rest.Config
	// Metrics configures how to serve metrics.
	Metrics access.MetricsPort
	// HealthAddress is the address of the health probes; "0" disables them.
	HealthAddress string
	// ProfileAddress is the address of net/http/pprof; "" or "0" disables it.
	ProfileAddress string
	// LeaderElect enables leader election, so that only one replica acts.
	LeaderElect bool
	// LeaseDuration is election.Options.Duration.
	LeaseDuration time.Duration
	// Identity is the replica's name in the Lease, usually that of its pod. Defaults to a
	// unique name.
	Identity string
	// Gates is the source of NodeGates. Defaults to the API server.
	Gates gates.Source
	// Registerer registers the metrics. Defaults to the registry that is served at
	// Metrics.Address.
	Registerer prometheus.Registerer
	// Webhook, unless nil, makes the process serve the webhook that closes gates at
	// birth. It is not needed if a policy closes them.
	Webhook *Webhook
	// Options are the options of the controller.
	Options Options
}

// Client returns a client for everything except watching and patching nodes. It reads
// from the API server, not from a cache.
func (p *Process) Client() (client.WithWatch, error) {
	scheme, err := sharedScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(p.Config, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("building client: %w", err)
	}
	return c, nil
}

// Run runs a replica until the context ends. Then it completes the work in progress and
// releases the Lease.
func (p *Process) Run(ctx context.Context) error {
	scheme, err := sharedScheme()
	if err != nil {
		return err
	}
	api, err := p.Client()
	if err != nil {
		return err
	}
	// Leader election is not the manager's, which would end the process when the Lease is
	// lost.
	m, err := ctrl.NewManager(p.Config, ctrl.Options{
		Scheme:           scheme,
		MapperProvider:   func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil },
		Logger:           p.Options.Log,
		Metrics:          metricsserver.Options{BindAddress: "0"}, // see ports
		PprofBindAddress: p.ProfileAddress,
	})
	if err != nil {
		return fmt.Errorf("building manager: %w", err)
	}
	ports := newPorts(m)
	if err := errors.Join(p.assemble(ports, api), ports.serve(p, api)); err != nil {
		return fmt.Errorf("assembling controller: %w", err)
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("running controller: %w", err)
	}
	return nil
}

// assemble creates a replica, and adds it and the webhook to the manager.
func (p *Process) assemble(m manager.Manager, api client.WithWatch) error {
	r, err := p.newReplica(api)
	if err != nil {
		return err
	}
	if p.Webhook != nil {
		if err := p.serveWebhook(m, r.birthGates); err != nil {
			return err
		}
	}
	return r.addTo(m)
}
