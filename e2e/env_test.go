// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/access"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
)

// env is one test's access to the cluster. The test acts as the administrator, the kubelets
// and the DaemonSet controller.
type env struct {
	*testing.T
	cluster *testcluster.Cluster
	admin   client.WithWatch
	// earlier is the part of the audit log that is about tests that had the cluster before.
	earlier auditMark
}

// in returns the environment for a subtest in the same cluster.
func (e *env) in(t *testing.T) *env {
	return &env{T: t, cluster: e.cluster, admin: e.admin, earlier: e.earlier}
}

// laterClock is the real clock, set ahead, so that the controller considers nodes as older
// than a test can create them.
type laterClock struct {
	clock.RealClock
	ahead time.Duration
}

// Now implements clock.PassiveClock.
func (c laterClock) Now() time.Time { return c.RealClock.Now().Add(c.ahead) }

// Since implements clock.PassiveClock.
func (c laterClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// startController runs a controller under its own ServiceAccount until the test ends or the
// returned function is called. Its clock is set ahead by the given duration.
func (e *env) startController(ahead time.Duration) (stop func()) {
	e.Helper()
	return e.runController(func(p *controller.Process) { p.Options.Clock = laterClock{ahead: ahead} })
}

// startWithMetrics is startController for a controller with separate metrics.
func (e *env) startWithMetrics() (metrics *prometheus.Registry, stop func()) {
	e.Helper()
	metrics = prometheus.NewRegistry()
	return metrics, e.runController(func(p *controller.Process) { p.Registerer = metrics })
}

// runController is startController for a controller with other options.
func (e *env) runController(change func(*controller.Process)) (stop func()) {
	e.Helper()
	config, err := e.cluster.ServiceAccount(e.Context(), installation.Namespace, installation.ServiceAccount)
	if err != nil {
		e.Fatalf("getting the controller's credentials: %v", err)
	}
	config.UserAgent = "nodegate"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	process := controller.Process{
		Config: config, Metrics: access.MetricsPort{Address: "0"}, HealthAddress: "0", Registerer: prometheus.NewRegistry(),
		Options: controller.Options{Namespace: installation.Namespace, AllowedTaintKeys: installation.AllowedTaintKeys, AllowedStampAnnotations: installation.AllowedStampAnnotations, Log: e.logger()},
	}
	change(&process)
	go func() { done <- process.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			e.Errorf("the controller returned %v", err)
		}
	})
	e.Cleanup(stop)
	return stop
}

func (e *env) logger() logr.Logger { return testr.NewWithOptions(e.T, testr.Options{}) }

// must fails the test on an error.
func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// deletedAtEnd deletes an object when the test ends. It leaves others of the same kind alone:
// a subtest that ends must not delete those of subtests that run at the same time.
func (e *env) deletedAtEnd(o client.Object) {
	e.Cleanup(func() {
		if err := e.admin.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			e.Errorf("deleting %T %s: %v", o, o.GetName(), err)
		}
	})
}

// eventually waits until a check succeeds.
func (e *env) eventually(what string, check func() error) {
	e.Helper()
	awaittest.Until(e.T, what, func(context.Context) error { return check() })
}

var errNotYet = errors.New("not yet")
