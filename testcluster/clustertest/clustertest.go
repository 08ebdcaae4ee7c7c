// SPDX-License-Identifier: Apache-2.0

// Package clustertest gives the tests of a package one cluster to share.
//
//	func TestMain(m *testing.M) { clustertest.Main(m, testcluster.Options{}) }
//
//	func TestSomething(t *testing.T) {
//		c := clustertest.Shared(t)
//		namespace := clustertest.Namespace(t, c)
//		...
//	}
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

// shared is the cluster of the package under test.
var shared struct {
	options testcluster.Options
	once    sync.Once
	cluster *testcluster.Cluster
	err     error
}

// Main runs the tests of a package, stops the cluster that they shared, and
// exits. If a component of the cluster ended by itself, the tests have failed.
// If they have failed, the cluster's temporary directory is kept for a day.
func Main(m *testing.M, options testcluster.Options) {
	if options.Progress == nil {
		options.Progress = os.Stderr
	}
	shared.options = options
	os.Exit(run(m))
}

func run(m *testing.M) (status int) {
	defer func() {
		c := shared.cluster
		if c == nil {
			return
		}
		if status != 0 || c.Err() != nil {
			c.Keep()
			fmt.Fprintf(os.Stderr, "clustertest: the cluster's logs are in %s\n", c.Dir())
		}
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			fmt.Fprintln(os.Stderr, "clustertest:", err)
			status = 1
		}
	}()
	return m.Run()
}

// SkipIfShort skips the test under -short. Tests that start a cluster call it
// first, so that 'go test -short' works without any components. Shared calls it
// itself.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: run without -short")
	}
}

// HasMutatingPolicies reports whether the tests' Kubernetes (testcluster.DefaultVersion)
// serves MutatingAdmissionPolicies as v1.
func HasMutatingPolicies() bool { return !components.Before(testcluster.DefaultVersion(), "1.36") }

// SkipWithoutMutatingPolicies skips the test if HasMutatingPolicies is false.
// hack/test lists such tests, and does not count them as failures even if skips
// are failures.
func SkipWithoutMutatingPolicies(t testing.TB) {
	t.Helper()
	if !HasMutatingPolicies() {
		t.Skip("needs MutatingAdmissionPolicies: run with Kubernetes 1.36 or newer")
	}
}

// Shared returns the package's cluster, and skips the test under -short. The
// first call starts the cluster, so that other tests do not wait for it.
func Shared(t testing.TB) *testcluster.Cluster {
	t.Helper()
	SkipIfShort(t)
	shared.once.Do(func() {
		// The cluster outlives the first test.
		shared.cluster, shared.err = testcluster.Start(context.Background(), shared.options)
	})
	if shared.err != nil {
		t.Fatalf("starting the shared cluster: %v", shared.err)
	}
	return shared.cluster
}

// Kubectl returns the path of a kubectl: an installed one that is compatible with
// testcluster.DefaultVersion, or one that is built from the newest version.
func Kubectl(t testing.TB) string {
	t.Helper()
	paths, err := components.Build(t.Context(), components.Options{
		Components: []components.Component{components.Kubectl}, Progress: os.Stderr,
	})
	if err != nil {
		t.Fatalf("providing kubectl: %v", err)
	}
	return paths[components.Kubectl]
}

// Namespace creates a namespace for one test, and deletes it when the test
// ends. It does not wait for the deletion.
func Namespace(t testing.TB, c *testcluster.Cluster) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatalf("creating a client: %v", err)
	}
	namespaces := client.CoreV1().Namespaces()
	namespace, err := namespaces.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := namespaces.Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting namespace %s: %v", namespace.Name, err)
		}
	})
	return namespace.Name
}
