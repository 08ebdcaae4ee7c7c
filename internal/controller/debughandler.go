// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
)

// nodesPath is where it is told, beside the metrics, how all gates stand on one
// node: GET /nodes/NAME. A gate's status counts the same, and names a few.
const nodesPath = "/nodes/"

// answer is how a gate stands on a node, as last decided; of a gate in dry run, as
// it would stand.
type gateReport struct {
	Gate  string        `json:"gate"`
	Mode  v1alpha1.Mode `json:"mode,omitempty"`  // empty of a gate that is not known
	State string        `json:"state,omitempty"` // empty where the node is outside of the gate
	// Reason is why the gate is in this state.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Waiting says what a closed gate waits for, or because of which signal one that
	// is throttled is to be closed.
	Waiting *v1alpha1.WaitingNode `json:"waiting,omitempty"`

	Throttled  bool   `json:"throttled,omitempty"`
	Overdue    bool   `json:"overdue,omitempty"`
	Overridden string `json:"overridden,omitempty"`
}

// answers are about all gates that concern a node, by name; false if nothing was
// decided about the node.
func (c *Controller) gateReports(node string) ([]gateReport, bool) {
	states, ok := c.ledger.GateStates(node)
	set, out := c.set.Load(), make([]gateReport, 0, len(states))
	for _, s := range states {
		a := gateReport{Gate: s.Gate, State: s.State, Reason: s.Reason, Throttled: s.Throttled, Overdue: s.Overdue, Overridden: s.Override}
		if g, ok := set.Gate(s.Gate); ok {
			a.Mode = cmp.Or(g.Mode, v1alpha1.ModeEnforce)
		}
		if s.Throttled || s.State == v1alpha1.StateClosed {
			w := fleet.Waiting(node, s)
			a.Waiting = &w
		}
		out = append(out, a)
	}
	return out, ok
}

// addDebugHandler has the manager serve what is told of single nodes.
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
		http.Error(w, "this replica does not lead, and knows nothing: ask the one that the Lease nodegate names", http.StatusServiceUnavailable)
		return
	}
	reports, ok := c.gateReports(r.PathValue("node"))
	if !ok {
		http.Error(w, "nothing has been decided about a node of this name", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(map[string][]gateReport{"gates": reports}); err != nil {
		c.log.V(1).Info("cannot answer", "error", err.Error())
	}
}
