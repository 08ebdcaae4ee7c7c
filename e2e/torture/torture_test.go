// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// A short campaign of 15 seconds with all faults of requests and events at once, SIGKILLs,
// frozen watches and a killed API server. The seed is always the same.
func TestShortCampaign(t *testing.T) {
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	program, err := testbed.BuildProgram(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testcluster.Build(t.Context(), testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}}); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{1} { // seeds that find a defect are added here
		o := Options{Seed: seed, Program: program, Phases: []string{"all"}, Nodes: 15, Duration: 15 * time.Second, Progress: os.Stderr}
		err := Run(t.Context(), o, func(r *Report) {
			var text strings.Builder
			if _, err := r.WriteTo(&text); err != nil {
				t.Fatal(err)
			}
			t.Log(&text)
			if !r.Pass() {
				t.Errorf("seed %d: the campaign failed", seed)
			}
			events := 0
			for _, f := range eventFaults {
				events += r.Injected[f]
			}
			if events == 0 || r.Injected[faultproxy.Call] == 0 || r.Injected[apiServerKilled] == 0 {
				t.Errorf("seed %d: %d faults of events, %d SIGKILLs, %d of the API server; want some of each",
					seed, events, r.Injected[faultproxy.Call], r.Injected[apiServerKilled])
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Decisions of dice do not depend on the order of calls.
func TestDiceDependOnTheSeedOnly(t *testing.T) {
	ask := func(seed uint64, names ...string) map[string]uint64 {
		d, said := newDice(seed), make(map[string]uint64)
		for _, name := range names {
			said[name] = said[name]*31 + d.roll(name).Uint64()
		}
		return said
	}
	a, b := ask(1, "x", "y", "x", "y"), ask(1, "x", "x", "y", "y")
	if a["x"] != b["x"] || a["y"] != b["y"] {
		t.Errorf("dice with the same seed returned %v, and %v in another order", a, b)
	}
	if c := ask(2, "x"); c["x"] == ask(1, "x")["x"] || a["x"] == a["y"] {
		t.Error("dice with another seed or another name return the same")
	}
}

// A phase for which there is no program cannot be requested.
func TestPhaseWithoutItsProgram(t *testing.T) {
	for _, id := range []string{"R6c", "R10"} {
		err := Run(t.Context(), Options{Phases: []string{id}}, nil)
		if err == nil || !strings.Contains(err.Error(), "phase "+id+" cannot run: there is no program") {
			t.Errorf("the error is %v", err)
		}
	}
}

// The error for an unknown phase lists all phases.
func TestUnknownPhase(t *testing.T) {
	err := Run(t.Context(), Options{Phases: []string{"R99"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "R3 frozen") {
		t.Errorf("the error is %v", err)
	}
}
