// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/cluster/clustertest"
	"github.com/nodegate/nodegate/internal/testbed"
)

// patience is how long a test waits for what takes seconds at most.
const patience = time.Minute

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, cluster.Options{}) // all controllers: Deployments and DaemonSets have pods
}

// eventually waits until a check finds nothing wrong.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := testbed.Await(t.Context(), what, patience, check); err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file of a test's own.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path, content, 0o600))
}
