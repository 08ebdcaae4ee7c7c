// SPDX-License-Identifier: Apache-2.0

package testcluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// childVariable makes the test binary a program that starts a cluster in the directory
// that is the variable's value, and then ends as endVariable specifies.
const (
	childVariable = "NODEGATE_CLUSTER_TEST_DIR"
	endVariable   = "NODEGATE_CLUSTER_TEST_END"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		child(dir, os.Getenv(endVariable))
	}
	clustertest.Main(m, testcluster.Options{Audit: true})
}

func child(dir, end string) {
	c, err := testcluster.Start(context.Background(), smallest(dir))
	if err == nil {
		// It never ends by itself. Its last argument marks it for running.
		command := exec.Command("sh", "-c", "while sleep 600; do :; done", dir)
		err = c.StartProcess(command)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = io.ReadAll(os.Stdin) // until the test has listed the processes
	if end == "panic" {
		panic("requested by the test")
	}
	select {}
}

// smallest are the options of the cluster that starts fastest.
func smallest(dir string) testcluster.Options {
	return testcluster.Options{Dir: dir, Components: []testcluster.Component{testcluster.APIServer}}
}

func start(t *testing.T, options testcluster.Options) *testcluster.Cluster {
	t.Helper()
	clustertest.SkipIfShort(t)
	c, err := testcluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually waits until a condition holds. Its error is the reason why it does not
// hold yet.
func eventually(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	awaittest.Until(t, what, func(ctx context.Context) error {
		ok, err := condition(ctx)
		if err == nil && !ok {
			err = errors.New("not yet")
		}
		return err
	})
}

// running returns the IDs of the processes with the directory in their command line,
// such as all components.
func running(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatalf("finding processes: %v", err)
	}
	var found []string
	for _, entry := range entries {
		// Processes that have ended in the meantime have no command line.
		line, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if strings.Contains(string(line), dir) {
			found = append(found, entry.Name())
		}
	}
	return found
}

// groupExists reports whether a process group has any process.
func groupExists(group int) bool {
	return syscall.Kill(-group, 0) == nil
}
