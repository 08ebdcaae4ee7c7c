// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/e2e/judge/mutants"
	"github.com/nodegate/nodegate/e2e/judge/scenario"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

const root = "../../.."

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, scenario.ClusterOptions(os.Stderr))
}

// A refactoring that moves a safeguard must also update its mutant.
func TestFragmentsAreInTheSourceOnce(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range mutants.All {
		t.Run(m.Name, func(t *testing.T) {
			sources, err := m.Sources(root)
			if err != nil {
				t.Fatal(err)
			}
			for file, source := range sources {
				if filepath.Ext(file) == ".go" {
					if _, err := parser.ParseFile(token.NewFileSet(), file, source, 0); err != nil {
						t.Errorf("the mutated source cannot be parsed: %v", err)
					}
				}
			}
			if names[m.Name] {
				t.Error("another mutant has this name")
			}
			names[m.Name] = true
			if m.Breaks == "" || len(m.Plays) == 0 {
				t.Error("Breaks or Plays is missing")
			}
		})
	}
}

// sample contains mutants of three rules, to test the tool; 'make mutants' runs all.
var sample = []string{"patches do not test the Node's UID", "budgets are unlimited", "deleted gates leave taints and records"}

func TestTheJudgeCatchesMutants(t *testing.T) {
	clustertest.SkipWithoutMutatingPolicies(t)
	c := clustertest.Shared(t)
	list, err := mutants.Find(sample...)
	if err != nil {
		t.Fatal(err)
	}
	directory, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	err = mutants.Run(t.Context(), c, directory, list, func(o mutants.Outcome) {
		if o.Caught == nil {
			t.Error(o)
		} else {
			t.Log(o)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
