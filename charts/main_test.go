// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

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
func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// readYAML reads a file into a variable.
func readYAML(t tester, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, yaml.Unmarshal(text, into))
}

// write writes a temporary file of the test.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path, content, 0o600))
}
