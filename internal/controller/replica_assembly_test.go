// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodegate/nodegate/internal/controller/controllertest"
)

// newTestReplica returns a replica that makes no requests until it runs.
func newTestReplica(t *testing.T, elect bool) *replica {
	t.Helper()
	p := &Process{
		Config: &rest.Config{Host: "https://127.0.0.1:1"}, LeaderElect: elect, Identity: "first", Registerer: prometheus.NewRegistry(),
		Options: Options{Namespace: "nodegate-system", Log: logr.Discard()},
	}
	r, err := p.newReplica(controllertest.Client(t, interceptor.Funcs{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.current.Load().queue.ShutDown)
	return r
}

// Only a replica that has a Lease can give it up.
func TestLeaseIsGivenUpIfThereIsOne(t *testing.T) {
	for _, elect := range []bool{false, true} {
		if got := newTestReplica(t, elect).current.Load().options.GiveUpLease; got != elect {
			t.Errorf("leader election: %t; the Lease is given up: %t", elect, got)
		}
	}
}

// probes is a manager that records the checks.
type probes struct {
	manager.Manager
	live, ready map[string]healthz.Checker
}

func (*probes) Add(manager.Runnable) error                              { return nil }
func (*probes) AddMetricsServerExtraHandler(string, http.Handler) error { return nil }

func (p *probes) AddHealthzCheck(name string, check healthz.Checker) error {
	p.live[name] = check
	return nil
}

func (p *probes) AddReadyzCheck(name string, check healthz.Checker) error {
	p.ready[name] = check
	return nil
}

// The probes fail if all workers hang, and if the gates are not known.
func TestProbesAskTheReplica(t *testing.T) {
	r := newTestReplica(t, false)
	p := &probes{live: map[string]healthz.Checker{}, ready: map[string]healthz.Checker{}}
	if err := r.addTo(p); err != nil {
		t.Fatal(err)
	}
	live, ready := p.live["loop"], p.ready["feeds"]
	if live == nil || ready == nil {
		t.Fatalf("liveness checks: %v, readiness checks: %v", p.live, p.ready)
	}
	if err := live(nil); err != nil {
		t.Errorf("a standby is not alive: %v", err)
	}
	if ready(nil) == nil {
		t.Error("the replica is ready before the gates are known")
	}
	c := r.current.Load()
	c.leading.Store(true)
	c.liveness.requested.Store(time.Now().Add(-livenessTimeout - time.Minute).UnixNano())
	if live(nil) == nil {
		t.Error("the replica is alive although all workers hang")
	}
}

// When a gate is added, what it needs is not observed yet. The replicas stay endpoints of the webhook,
// which closes the other gates on new nodes.
func TestReplicaStaysReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		var unsynced []string
		w.unsyncedFeeds = func() []string { return unsynced }
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Second)
		r := &replica{}
		r.current.Store(w.c)
		unsynced = []string{"pods"}
		if r.Ready() == nil {
			t.Error("the replica is ready before the pods are observed")
		}
		unsynced = nil
		if err := r.Ready(); err != nil {
			t.Errorf("the replica is not ready: %v", err)
		}
		unsynced = []string{"pods of a new gate"}
		if err := r.Ready(); err != nil {
			t.Errorf("the replica is no longer ready: %v", err)
		}
	})
}
