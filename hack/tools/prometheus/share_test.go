// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
)

// The share of closed nodes on the dashboard is the one that NodegateMostNodesClosed compares. A
// gate that was just applied to a running fleet holds none of its nodes, although it is open on
// none of them: they are not its members.
func TestShareOfClosedNodes(t *testing.T) {
	panels := theDashboard(t).Panels
	i := slices.IndexFunc(panels, func(p panel) bool { return strings.HasPrefix(p.Title, "Share of selected nodes") })
	if i < 0 {
		t.Fatal("there is no panel with the share of a gate's selected nodes")
	}
	more := &rulefmt.Rule{Alert: "More", Expr: filledIn.Replace(panels[i].Targets[0].Expr) + " > 0.5"}
	series := func(closed, open string) []string {
		return []string{
			`nodegate_gate_nodes{gate="cni",state="closed"} ` + closed, `nodegate_gate_nodes{gate="cni",state="open"} ` + open,
			`nodegate_gate_nodes{gate="cni",state="selected"} 10x60`,
		}
	}
	for name, c := range map[string]struct {
		series []string
		want   []string
	}{
		"no members":  {series("0x60", "0x60"), nil},
		"few closed":  {series("4x60", "6x60"), nil},
		"most closed": {series("6x60", "0x60"), []string{"cni"}},
	} {
		shown := firingFor(t, more, c.series, time.Hour, "gate")
		alert := firingFor(t, alertNamed(t, "NodegateMostNodesClosed"), c.series, time.Hour, "gate")
		if !slices.Equal(shown, c.want) || !slices.Equal(alert, c.want) {
			t.Errorf("%s: more than half are closed by the panel for %q, by the alert for %q, want %q", name, shown, alert, c.want)
		}
	}
}
