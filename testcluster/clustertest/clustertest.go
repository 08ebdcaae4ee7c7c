// SPDX-License-Identifier: Apache-2.0

// Package clustertest gives the tests of a package one cluster to share, or a cluster to
// themselves while they run.
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
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

// clusters are those of the package under test.
var clusters struct {
	options testcluster.Options
	shared  func() (*testcluster.Cluster, error)

	mutex sync.Mutex
	all   []*testcluster.Cluster
	idle  []*testcluster.Cluster // started for Idle, and in use by no test
}

// Main runs the tests of a package, stops the clusters that they used, and
// exits. If a component of a cluster ended by itself, the tests have failed.
// If they have failed, the clusters' temporary directories are kept for a day.
func Main(m *testing.M, options testcluster.Options) {
	if options.Progress == nil {
		options.Progress = os.Stderr
	}
	clusters.options = options
	clusters.shared = sync.OnceValues(start)
	status := m.Run()
	for _, c := range clusters.all {
		status = max(status, stop(c, status != 0))
	}
	os.Exit(status)
}

// InParallel sets the number of tests that run at the same time, which is the number of
// processors otherwise, unless -parallel is given. Call it before Main for tests that wait most
// of the time.
func InParallel(tests int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(tests)) // which the testing package declares
	}
}

// start starts a cluster, which outlives the test that needs it first.
func start() (*testcluster.Cluster, error) {
	c, err := testcluster.Start(context.Background(), clusters.options)
	if err != nil {
		return nil, err
	}
	clusters.mutex.Lock()
	defer clusters.mutex.Unlock()
	clusters.all = append(clusters.all, c)
	return c, nil
}

// stop stops a cluster, and returns the exit status of that.
func stop(c *testcluster.Cluster, failed bool) (status int) {
	if failed || c.Err() != nil {
		c.Keep()
		fmt.Fprintf(os.Stderr, "clustertest: a cluster's logs are in %s\n", c.Dir())
	}
	if err := errors.Join(c.Err(), c.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "clustertest:", err)
		return 1
	}
	return 0
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
func HasMutatingPolicies() bool {
	return !components.Before(testcluster.DefaultVersion(), mutatingPoliciesVersion)
}

// mutatingPoliciesVersion is the first version that serves MutatingAdmissionPolicies as v1.
const mutatingPoliciesVersion = "1.36"

// SkipWithoutMutatingPolicies skips the test if HasMutatingPolicies is false.
func SkipWithoutMutatingPolicies(t testing.TB) {
	t.Helper()
	SkipBefore(t, mutatingPoliciesVersion, "MutatingAdmissionPolicies")
}

// SkipBefore skips the test if the tests' Kubernetes is older than the version in which what the
// test needs exists. hack/test reads the message: on an older version, it lists such tests, and does
// not count them as failures even if skips are failures.
func SkipBefore(t testing.TB, version, needs string) {
	t.Helper()
	if components.Before(testcluster.DefaultVersion(), version) {
		t.Skipf("needs %s: run with Kubernetes %s or newer", needs, version)
	}
}

// requireMain fails the test if Main has not been called: nothing would stop the clusters.
func requireMain(t testing.TB) {
	t.Helper()
	if clusters.shared == nil {
		t.Fatal("TestMain must call clustertest.Main, which stops the clusters of the package's tests")
	}
}

// Shared returns the package's cluster, and skips the test under -short. The
// first call starts the cluster, so that other tests do not wait for it.
func Shared(t testing.TB) *testcluster.Cluster {
	t.Helper()
	requireMain(t)
	SkipIfShort(t)
	c, err := clusters.shared()
	if err != nil {
		t.Fatalf("starting the shared cluster: %v", err)
	}
	return c
}

// Idle returns a cluster that no other test uses until this one ends, and skips the test
// under -short. The test runs in parallel with others. It must leave the cluster as it found
// it; after a failed one, the cluster is not used again. If all clusters are in use, Idle
// starts another one and prepares it.
func Idle(t *testing.T, prepare func(*testcluster.Cluster) error) *testcluster.Cluster {
	t.Helper()
	requireMain(t)
	SkipIfShort(t)
	t.Parallel()
	c := takeIdle()
	if c == nil {
		var err error
		if c, err = start(); err == nil {
			err = prepare(c)
		}
		if err != nil {
			t.Fatalf("starting a cluster: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the cluster's logs are in %s", c.Dir())
			return
		}
		clusters.mutex.Lock()
		defer clusters.mutex.Unlock()
		clusters.idle = append(clusters.idle, c)
	})
	return c
}

// takeIdle returns the cluster that was used last, or nil if all are in use.
func takeIdle() *testcluster.Cluster {
	clusters.mutex.Lock()
	defer clusters.mutex.Unlock()
	last := len(clusters.idle) - 1
	if last < 0 {
		return nil
	}
	c := clusters.idle[last]
	clusters.idle = clusters.idle[:last]
	return c
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
