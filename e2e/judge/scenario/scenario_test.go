// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/e2e/judge/scenario"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, scenario.ClusterOptions(os.Stderr))
}

// The judge checks something under every rule, and finds no violation.
func TestNodegatePassesTheJudge(t *testing.T) {
	clustertest.SkipWithoutMutatingPolicies(t)
	c := clustertest.Shared(t)
	program, err := testbed.BuildProgram(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	result, err := scenario.Run(t.Context(), scenario.Options{Cluster: c, Program: program, Linger: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := result.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	for _, stuck := range result.Stuck {
		t.Errorf("a play did not finish: %v", stuck)
	}
	if !result.Pass() {
		t.Errorf("the verdict is FAIL")
	}
	t.Logf("after %s:\n%s", time.Since(begun).Round(time.Second), &text)
}
