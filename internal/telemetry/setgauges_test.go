// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A gate that is not Ready has one series, with the current reason. A gate that is Ready has none,
// and neither has a standby or a deleted gate.
func TestReasonOfAGateThatIsNotReady(t *testing.T) {
	c, m := everyMetric()
	known := map[string][]string{"gate": nil}
	m.KeepGates(known)
	set := func(status metav1.ConditionStatus, reason string) func() {
		return func() {
			m.GateConditions("gate", []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason}})
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"not accepted", set(metav1.ConditionFalse, v1alpha1.ReasonNotAccepted), []string{v1alpha1.ReasonNotAccepted}},
		{"another reason", set(metav1.ConditionFalse, v1alpha1.ReasonGuardNotProved), []string{v1alpha1.ReasonGuardNotProved}},
		{"the same reason", set(metav1.ConditionFalse, v1alpha1.ReasonGuardNotProved), []string{v1alpha1.ReasonGuardNotProved}},
		{"ready", set(metav1.ConditionTrue, v1alpha1.ReasonReady), nil},
		{"no condition", func() { m.GateConditions("gate", nil) }, []string{""}},
		{"a standby", m.StepDown, nil},
		{"leading again", set(metav1.ConditionFalse, v1alpha1.ReasonWriteDenied), []string{v1alpha1.ReasonWriteDenied}},
		{"deleted", func() { m.KeepGates(nil) }, nil},
		{"created again", func() { m.KeepGates(known); set(metav1.ConditionTrue, v1alpha1.ReasonReady)() }, nil},
	} {
		step.do()
		if got := c.valuesOf(t, "nodegate_gate_not_ready", "gate", labelReason); !slices.Equal(got, step.want) {
			t.Errorf("%s: there are series with the reasons %q, want %q", step.name, got, step.want)
		}
	}
}

// A scrape between two reports must not miss the nodes that are not members.
func TestNonMembersKeepTheirSeries(t *testing.T) {
	c, m := everyMetric()
	m.KeepGates(map[string][]string{"gate": nil})
	report := func(reasons ...v1alpha1.NonMemberReason) {
		t.Helper()
		var all []v1alpha1.NonMembers
		var want []string
		for _, reason := range reasons {
			all, want = append(all, v1alpha1.NonMembers{Reason: reason, Count: 1}), append(want, string(reason))
		}
		m.GateNonMembers("gate", all)
		if got := c.valuesOf(t, "nodegate_gate_non_member_nodes", "gate", labelReason); !slices.Equal(got, want) {
			t.Errorf("there are series with the reasons %q, want %q", got, want)
		}
	}
	series := func() prometheus.Gauge {
		return m.nonMembers.WithLabelValues("gate", string(v1alpha1.NonMemberNotIdle))
	}
	report(v1alpha1.NonMemberBlocked, v1alpha1.NonMemberNotIdle)
	before := series()
	report(v1alpha1.NonMemberNotIdle, v1alpha1.NonMemberPaused)
	if series() != before {
		t.Error("the series was removed and created again, although there are nodes with that reason in both reports")
	}
	m.StepDown()
	report(v1alpha1.NonMemberPaused)
	report()
}
