// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// getReports returns the handler's response about a node: the code, and the reports by
// gate.
func (w *world) getReports(t *testing.T, node string) (int, map[string]gateReport) {
	t.Helper()
	mux, response := http.NewServeMux(), httptest.NewRecorder()
	mux.HandleFunc("GET "+nodesPath+"{node}", w.c.serveNode)
	mux.ServeHTTP(response, httptest.NewRequest(http.MethodGet, nodesPath+node, nil))
	var body struct{ Gates []gateReport }
	if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil && response.Code == http.StatusOK {
		t.Fatalf("%v: %s", err, response.Body)
	}
	out := make(map[string]gateReport)
	for _, a := range body.Gates {
		out[a.Gate] = a
	}
	return response.Code, out
}

// The debug handler reports for each node what a gate in dry run would do. The gate's
// status names at most ten nodes; its counts equal the sums of these reports.
func TestDebugHandlerReportsDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			controllertest.Gate("dryrun", inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingClose }),
			controllertest.Gate("enforced", func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = controllertest.TaintKey + "-2" }))
		w.add(100, func(i int, n *gate.Node) {
			if i < 60 {
				unfit(i, n)
			}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		var open, closed, throttled int32
		for _, name := range w.NodeNames() {
			code, reports := w.getReports(t, name)
			a := reports["dryrun"]
			if code != http.StatusOK || a.Mode != v1alpha1.ModeDryRun || reports["enforced"].Mode != v1alpha1.ModeEnforce {
				t.Fatalf("%s: %d, %+v", name, code, reports)
			}
			switch {
			case a.State == v1alpha1.StateOpen:
				open++
			case a.State == v1alpha1.StateClosed:
				closed++
			case a.Throttled:
				throttled++
			}
			if unmet := a.State == v1alpha1.StateClosed || a.Throttled; unmet &&
				(a.Waiting == nil || a.Waiting.Signal != "fit" || !strings.Contains(a.Waiting.Message, "no label fit")) {
				t.Errorf("%s: the report does not contain what the gate waits for: %+v", name, a)
			}
		}
		n := w.stored("dryrun").Status.Nodes
		if open != n.Open || closed != n.Closed || throttled != n.Throttled || closed != 20 || throttled != 40 {
			t.Errorf("%d open, %d closed, %d throttled are reported; the status counts %+v", open, closed, throttled, n)
		}
		if code, _ := w.getReports(t, "unknown"); code != http.StatusNotFound {
			t.Errorf("a node that does not exist: %d, want %d", code, http.StatusNotFound)
		}
		w.c.leading.Store(false)
		if code, _ := w.getReports(t, "n0000"); code != http.StatusServiceUnavailable {
			t.Errorf("a replica that is not the leader: %d, want %d", code, http.StatusServiceUnavailable)
		}
		w.c.leading.Store(true)
	})
}
