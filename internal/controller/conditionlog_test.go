// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// A gate from a file has no status. Its conditions are reported in the log, once for each
// change, and by metrics.
func TestConditionsOfGatesFromFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var patches atomic.Int32
		var fail atomic.Bool
		var log controllertest.LogLines
		w := newWorld(t, controllertest.Gate("gate"), controllertest.Gate("refused", func(s *v1alpha1.NodeGateSpec) { s.Taint.Value = "other" }))
		w.source = v1alpha1.SourceFiles
		w.add(3, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(log.Logger(), countPatches(&patches, &fail))()
		controllertest.Pass(time.Minute)
		logged := func(parts ...string) (n int) {
			for _, line := range log.All() {
				all := strings.Contains(line, "gate condition changed")
				for _, part := range parts {
					all = all && strings.Contains(line, part)
				}
				if all {
					n++
				}
			}
			return n
		}
		if patches.Load() != 0 {
			t.Errorf("%d writes of a status that does not exist", patches.Load())
		}
		if logged(`"gate"="gate"`, `"condition"="Accepted" "status"="True"`) != 1 ||
			logged(`"gate"="refused"`, `"condition"="Accepted" "status"="False" "reason"="TaintConflict"`) != 1 {
			t.Errorf("want each condition logged once, got:\n%s", strings.Join(log.All(), "\n"))
		}
		before := logged()
		controllertest.Pass(time.Hour)
		if n := logged() - before; n != 0 {
			t.Errorf("%d lines in an hour without changes", n)
		}
		if testutil.ToFloat64(w.c.metrics.Conditions.WithLabelValues("gate", v1alpha1.ConditionAccepted)) != 1 ||
			testutil.ToFloat64(w.c.metrics.Conditions.WithLabelValues("refused", v1alpha1.ConditionAccepted)) != 0 {
			t.Error("the metrics do not show which gate is accepted")
		}
		if r, err := gate.ParseRecord(w.node("n0000").Records["gate"]); err != nil || r.Source != v1alpha1.SourceFiles {
			t.Errorf("the gate from a file did not adopt the record with its name: %+v, %v", r, err)
		}
	})
}

// What a gate of another source closed stays closed, and the log and a metric report this.
func TestUnlistedGatesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log controllertest.LogLines
		w := newWorld(t)
		w.source = v1alpha1.SourceFiles
		w.add(3, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(log.Logger(), countPatches(new(atomic.Int32), new(atomic.Bool)))()
		controllertest.Pass(time.Minute)
		text := strings.Join(log.All(), "\n")
		if w.closed() != 3 || strings.Count(text, "nodes have records of unlisted gates, keeping their taints") != 1 || testutil.ToFloat64(w.c.metrics.UnlistedGates) != 1 {
			t.Errorf("%d nodes are closed, want 3; log:\n%s", w.closed(), text)
		}
		w.mu.Lock()
		w.source = v1alpha1.SourceCRD // the source of the records, and complete
		w.mu.Unlock()
		w.setGates(true)
		controllertest.Pass(time.Minute)
		if w.closed() != 0 || testutil.ToFloat64(w.c.metrics.UnlistedGates) != 0 {
			t.Errorf("%d nodes are closed, %v gates are unlisted, want none", w.closed(), testutil.ToFloat64(w.c.metrics.UnlistedGates))
		}
	})
}

// What a deleted gate closed stays closed if its taint is no longer allowed. The log names
// this cause.
func TestUnlistedGatesOfTaintsThatAreNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log controllertest.LogLines
		w := newWorld(t)
		w.allowedKeys = []string{"test.nodegate.dev/other"}
		w.add(3, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(log.Logger(), countPatches(new(atomic.Int32), new(atomic.Bool)))()
		controllertest.Pass(time.Minute)
		text := strings.Join(log.All(), "\n")
		if w.closed() != 3 || testutil.ToFloat64(w.c.metrics.UnlistedGates) != 1 ||
			!strings.Contains(text, "or because the taints are not in --allowed-taint-keys") || !strings.Contains(text, `"complete"=true`) {
			t.Errorf("%d nodes are closed, want 3; log:\n%s", w.closed(), text)
		}
	})
}

// A metric reports whether the list of gates is complete.
func TestCompletenessIsAMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		defer w.start(logr.Discard(), countPatches(new(atomic.Int32), new(atomic.Bool)))()
		for _, complete := range []bool{true, false, true} {
			w.setGates(complete, controllertest.Gate("gate"))
			controllertest.Pass(time.Second)
			if got := testutil.ToFloat64(w.c.metrics.Complete); got != map[bool]float64{true: 1}[complete] {
				t.Errorf("complete: %t, but the metric is %v", complete, got)
			}
		}
	})
}
