// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodegate/nodegate/internal/access"
)

// ports is a manager whose metrics and health probes are served by access.NewServer instead of
// by controller-runtime, whose servers have no limit of memory.
type ports struct {
	manager.Manager
	metrics *http.ServeMux
	// checks contains the checks of each health probe, by path.
	checks map[string]map[string]healthz.Checker
}

const (
	livePath  = "/healthz"
	readyPath = "/readyz"
)

func newPorts(m manager.Manager) *ports {
	p := &ports{Manager: m, metrics: http.NewServeMux(), checks: map[string]map[string]healthz.Checker{livePath: {}, readyPath: {}}}
	p.metrics.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return p
}

// AddMetricsServerExtraHandler implements manager.Manager.
func (p *ports) AddMetricsServerExtraHandler(path string, handler http.Handler) error {
	p.metrics.Handle(path, handler)
	return nil
}

// AddHealthzCheck implements manager.Manager.
func (p *ports) AddHealthzCheck(name string, check healthz.Checker) error {
	p.checks[livePath][name] = check
	return nil
}

// AddReadyzCheck implements manager.Manager.
func (p *ports) AddReadyzCheck(name string, check healthz.Checker) error {
	p.checks[readyPath][name] = check
	return nil
}

// serve adds the servers of both ports to the manager.
func (p *ports) serve(process *Process, reviewer access.Reviewer) error {
	if server, err := process.Metrics.Server(p.metrics, reviewer, process.Options.Log); err != nil {
		return err
	} else if server != nil {
		if err := p.Add(server); err != nil {
			return err
		}
	}
	if process.HealthAddress == "0" {
		return nil
	}
	probes := http.NewServeMux()
	for path, checks := range p.checks {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		probes.Handle(path, handler)
		probes.Handle(path+"/", handler) // single checks
	}
	server, err := access.NewServer("health probes", process.HealthAddress, probes, nil)
	if err != nil {
		return err
	}
	return p.Add(server)
}
