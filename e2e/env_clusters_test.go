// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// newOwnCluster starts a cluster for one test, which then runs in parallel with others. If
// the test fails, the cluster's logs are kept.
func newOwnCluster(t *testing.T, options testcluster.Options) *env {
	t.Helper()
	clustertest.SkipIfShort(t)
	t.Parallel()
	options.Audit = true
	c, err := testcluster.Start(t.Context(), options)
	if err != nil {
		t.Fatalf("starting a cluster: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
			t.Logf("the cluster's logs are in %s", c.Dir())
		}
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	return &env{T: t, cluster: c, admin: newClient(t, c)}
}

// newControllersEnv starts a cluster for one test with nodegate installed and with real
// controllers, to which args adds command-line arguments.
func newControllersEnv(t *testing.T, components []testcluster.Component, args ...string) *env {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	e := newOwnCluster(t, testcluster.Options{
		Components: components,
		ExtraArgs:  map[testcluster.Component][]string{testcluster.ControllerManager: args},
	})
	e.must(e.apply(t.Context()))
	e.must(e.awaitPolicies(t.Context()))
	e.must(e.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: daemonNamespace}}))
	return e
}
