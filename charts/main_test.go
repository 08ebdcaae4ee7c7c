// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, testcluster.Options{}) // all controllers: Deployments and DaemonSets have pods
}

// eventually waits until a check succeeds.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	awaittest.Until(t, what, check)
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a temporary file of the test.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path, content, 0o600))
}
