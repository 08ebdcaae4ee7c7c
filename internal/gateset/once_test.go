// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// A rejection in the status counts only if the caller wants it to, and if it applies to
// the current spec.
func TestStatusUse(t *testing.T) {
	known := gate.KeyPolicy{Allowed: gate.AllowedTaints{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}: true}, Managed: map[string]string{}}
	for name, c := range map[string]struct {
		reason     string
		generation int64
		policy     gate.KeyPolicy
		// rejected has, for each StatusUse, whether the gate is not in force.
		rejected [3]bool
	}{
		"key not allowed, keys unknown":      {v1alpha1.ReasonTaintKeyNotAllowed, 2, gate.KeyPolicy{}, [3]bool{false, true, true}},
		"key not allowed, keys known":        {v1alpha1.ReasonTaintKeyNotAllowed, 2, known, [3]bool{false, false, true}},
		"managed by a rule, rules unknown":   {v1alpha1.ReasonOwnedByNodeReadinessRule, 2, gate.KeyPolicy{}, [3]bool{false, true, true}},
		"managed by a rule, rules known":     {v1alpha1.ReasonOwnedByNodeReadinessRule, 2, known, [3]bool{false, false, true}},
		"another reason":                     {v1alpha1.ReasonTaintConflict, 2, gate.KeyPolicy{}, [3]bool{false, false, true}},
		"rejection of an earlier generation": {v1alpha1.ReasonTaintKeyNotAllowed, 1, gate.KeyPolicy{}, [3]bool{false, false, false}},
	} {
		declared := clitest.Declare(t, clitest.ByLabel("agent", ""))
		declared[0].Generation = 2
		declared[0].Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: c.reason, Message: "reported", ObservedGeneration: c.generation,
		}}
		for use, rejected := range c.rejected {
			set := gateset.Of(declared, c.policy, gateset.StatusUse(use))
			if g, _ := set.Gate("agent"); g.Accepted == rejected || set.Accepted("agent") == rejected || (set.Rejection("agent") == "reported") != rejected {
				t.Errorf("%s, use %d: acceptance %+v, want rejected %v", name, use, set.Acceptance["agent"], rejected)
			}
		}
	}
}

// A gate that cannot be compiled is not in force. The message says why, but not what the
// controller does meanwhile.
func TestBrokenGate(t *testing.T) {
	declared := clitest.Declare(t, "metadata: {name: broken}\nspec: {taint: {key: example.com/b, effect: NoSchedule}}", clitest.ByLabel("agent", ""))
	set := gateset.Of(declared, gate.KeyPolicy{}, gateset.IgnoreStatus)
	want := gate.Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: "compiling openWhen and closeWhen: neither has a signal"}
	if got := set.Acceptance["broken"]; got != want {
		t.Errorf("acceptance %+v, want %+v", got, want)
	}
	controller := gateset.New(&gateset.Set{}, gateset.Snapshot{Gates: []*v1alpha1.NodeGate{&declared[0]}}, gate.KeyPolicy{})
	if got := controller.Acceptance["broken"]; got.Reason != want.Reason || !strings.HasPrefix(got.Message, want.Message+". Until this is corrected") {
		t.Errorf("for a controller, the acceptance is %+v", got)
	}
	if set.Rejection("agent") != "" || set.Rejection("other") != "" {
		t.Errorf("rejections %q and %q", set.Rejection("agent"), set.Rejection("other"))
	}
}

// Other gates ignore the taints of a gate that may be on nodes, but not those of a gate that
// may not use its key: they belong to another program.
func TestKeys(t *testing.T) {
	const ours, theirs = "example.com/a", "example.com/b"
	policy := gate.KeyPolicy{Allowed: gate.AllowedTaints{{Key: ours, Effect: corev1.TaintEffectNoSchedule}: true}}
	with := func(key, more string) string {
		return "metadata: {name: g}\nspec: {nodeSelector: {}, taint: {key: " + key + ", effect: NoSchedule}" + more + "}"
	}
	const signal = ", openWhen: [{name: s, label: {key: fit}}]"
	for name, c := range map[string]struct {
		declared string
		policy   gate.KeyPolicy
		want     string
	}{
		"allowed":                     {with(ours, signal), policy, ours},
		"allowed, invalid":            {with(ours, ""), policy, ours},
		"in dry run":                  {with(ours, signal+", mode: DryRun"), policy, ""},
		"not allowed":                 {with(theirs, signal), policy, ""},
		"not allowed, invalid":        {with(theirs, ""), policy, ""},
		"what is allowed is unknown":  {with(theirs, signal), gate.KeyPolicy{}, theirs},
		"not allowed, for the second": {with(ours, signal+", recloseTaint: {key: "+theirs+", effect: NoSchedule}"), policy, ""},
	} {
		set := gateset.Of(clitest.Declare(t, c.declared), c.policy, gateset.IgnoreStatus)
		if got := strings.Join(slices.Collect(maps.Keys(set.Keys)), " "); got != c.want {
			t.Errorf("%s: the keys are %q, want %q", name, got, c.want)
		}
	}
}

// The needs on a node are those of the gates that select it or have a record on it.
func TestNeedsOn(t *testing.T) {
	waiting := func(name, selector string) string {
		return "metadata: {name: " + name + "}\nspec:\n  nodeSelector: {" + selector + "}\n  taint: {key: example.com/a, effect: NoSchedule}\n" +
			"  openWhen: [{name: pod, daemonSet: {namespace: " + name + ", name: agent}}]"
	}
	set := gateset.Reported(clitest.Declare(t, waiting("selects", ""), waiting("recorded", "matchLabels: {no: such}"), waiting("other", "matchLabels: {no: such}")))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.RecordAnnotationPrefix + "recorded": clitest.Birth}}}
	if got := strings.Join(set.NeedsOn(node, &gate.DaemonSets{}).DaemonSetNamespaces, " "); got != "recorded selects" {
		t.Errorf("namespaces %s", got)
	}
	if got := strings.Join(set.Needs(&gate.DaemonSets{}).DaemonSetNamespaces, " "); got != "other recorded selects" {
		t.Errorf("namespaces of all gates %s", got)
	}
}
