// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
)

// nodesPath is the path, on the metrics port, of the states of all gates on one node: GET
// /nodes/<name>. A gate's status counts these states, and names only a few nodes.
const nodesPath = "/nodes/"

// gateReport is the last decided state of a gate on a node; the simulated state if the
// gate is in dry run.
type gateReport struct {
	Gate  string        `json:"gate"`
	Mode  v1alpha1.Mode `json:"mode,omitempty"`  // empty if the gate is unlisted
	State string        `json:"state,omitempty"` // empty if the node is not a member
	// Reason is the reason for the state.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Waiting is what a closed gate waits for, or, if closing is throttled, the signal
	// that requires the gate to close.
	Waiting *v1alpha1.WaitingNode `json:"waiting,omitempty"`

	Throttled  bool   `json:"throttled,omitempty"`
	Overdue    bool   `json:"overdue,omitempty"`
	Overridden string `json:"overridden,omitempty"`
}

// gateReports returns the reports of all gates that concern a node, by name; false if
// nothing was decided about the node.
func (c *Controller) gateReports(node string) ([]gateReport, bool) {
	states, ok := c.ledger.GateStates(node)
	set, out := c.set.Load(), make([]gateReport, 0, len(states))
	for _, s := range states {
		r := gateReport{Gate: s.Gate, State: s.State, Reason: s.Reason, Throttled: s.Throttled, Overdue: s.Overdue, Overridden: s.Override}
		if g, ok := set.Gate(s.Gate); ok {
			r.Mode = g.Mode.OrDefault()
		}
		if s.Throttled || s.State == v1alpha1.StateClosed {
			w := fleet.Waiting(node, s)
			r.Waiting = &w
		}
		out = append(out, r)
	}
	return out, ok
}

// addDebugHandler adds the handler of nodesPath to the manager's metrics server.
func addDebugHandler(m manager.Manager, serve http.HandlerFunc) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+nodesPath+"{node}", serve)
	if err := m.AddMetricsServerExtraHandler(nodesPath, mux); err != nil {
		return fmt.Errorf("serving %s: %w", nodesPath, err)
	}
	return nil
}

func (c *Controller) serveNode(w http.ResponseWriter, r *http.Request) {
	if !c.leading.Load() {
		http.Error(w, "this replica is not the leader and has no state of nodes: ask the holder of the Lease nodegate", http.StatusServiceUnavailable)
		return
	}
	reports, ok := c.gateReports(r.PathValue("node"))
	if !ok {
		http.Error(w, "no decision has been made about a node with this name", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(map[string][]gateReport{"gates": reports}); err != nil {
		c.log.V(1).Info("cannot write response", "error", err.Error())
	}
}
