// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"slices"
	"testing"
	"time"
)

// A gate that is not Ready because of what another alert reports does not fire a second alert. With
// any other reason it fires, whatever the other alerts report.
func TestNotReadyDespiteOtherAlerts(t *testing.T) {
	const (
		noGuard = `nodegate_guard_proved{guard="nodegate-records"} 0x60`
		noBirth = `nodegate_birth_closing_proved{gate="cni"} 0x60`
		proved  = `nodegate_birth_closing_proved{gate="csi"} 1x60`
	)
	notReady := func(gate, reason string) string {
		return `nodegate_gate_condition{gate="` + gate + `",condition="Ready"} 0x60` + "\n" +
			`nodegate_gate_not_ready{gate="` + gate + `",reason="` + reason + `"} 1x60`
	}
	rule := alertNamed(t, "NodegateGateNotReady")
	for name, s := range map[string]struct {
		series []string
		want   []string // gates
	}{
		"only a guard is not proved":         {[]string{noGuard, proved, notReady("cni", "GuardNotProved"), notReady("csi", "GuardNotProved")}, nil},
		"one gate has another reason":        {[]string{noGuard, proved, notReady("cni", "GuardNotProved"), notReady("csi", "WriteDenied")}, []string{"csi"}},
		"all gates have other reasons":       {[]string{noGuard, notReady("cni", "DaemonSetNotFound"), notReady("csi", "NotAccepted")}, []string{"cni", "csi"}},
		"a birth is not proved":              {[]string{noBirth, notReady("cni", "BirthNotProved")}, nil},
		"another reason, and no proof":       {[]string{noBirth, notReady("cni", "DaemonSetNotFound")}, []string{"cni"}},
		"still closed on new nodes":          {[]string{noGuard, notReady("cni", "BirthNotProved")}, []string{"cni"}}, // a gate in DryRun: NodegateBirthsOpen does not fire
		"the reason changes":                 {[]string{`nodegate_gate_not_ready{gate="cni",reason="NotAccepted"} 1x5 stale`, `nodegate_gate_not_ready{gate="cni",reason="WriteDenied"} _x6 1x60`}, []string{"cni"}},
		"the reason is that of a guard, too": {[]string{noGuard, `nodegate_gate_not_ready{gate="cni",reason="WriteDenied"} 1x5 stale`, `nodegate_gate_not_ready{gate="cni",reason="GuardNotProved"} _x6 1x60`}, nil},
	} {
		got := firingFor(t, rule, s.series, 12*time.Minute, "gate")
		if !slices.Equal(got, s.want) {
			t.Errorf("%s: it fires for the gates %q, want %q", name, got, s.want)
		}
	}
}
