// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// The time at which a gate's signals changed remains until they change again, whatever else changes.
func TestEdited(t *testing.T) {
	ng := &clitest.Declare(t, "metadata: {name: g, uid: a}\nspec: {taint: {key: example.com/a, effect: NoSchedule}, openWhen: [{name: s, label: {key: a}}]}")[0]
	begin := time.Unix(1_800_000_000, 0)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	set := &gateset.Set{}
	for minute, step := range []struct {
		what   string
		change func(*v1alpha1.NodeGate)
		want   time.Time
	}{
		{"first observed", func(*v1alpha1.NodeGate) {}, time.Time{}},
		{"another label", func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen[0].Label.Key = "b"; ng.Generation++ }, at(1)},
		{"nothing changes", func(*v1alpha1.NodeGate) {}, at(1)},
		{"only a wait changes", func(ng *v1alpha1.NodeGate) { ng.Spec.Timing.OpenAfterSeconds = 5; ng.Generation++ }, at(1)},
		{"created again", func(ng *v1alpha1.NodeGate) { ng.UID = "b" }, at(4)},
	} {
		ng = ng.DeepCopy()
		step.change(ng)
		set = gateset.New(set, gateset.Snapshot{Source: v1alpha1.SourceCRD, Complete: true, Gates: []*v1alpha1.NodeGate{ng}, At: at(minute)}, gate.KeyPolicy{})
		if g, _ := set.Gate("g"); !g.Edited.Equal(step.want) {
			t.Errorf("%s: edited at %s, want %s", step.what, g.Edited, step.want)
		}
	}
}

// A gate is compiled again if fields appear that an older CustomResourceDefinition had hidden: the API
// server does not change the generation of objects when the definition changes.
func TestUncoveredFieldsAreCompiled(t *testing.T) {
	hidden := &clitest.Declare(t, "metadata: {name: g, uid: a, generation: 1}\nspec: {taint: {key: example.com/a, effect: NoSchedule}, openWhen: [{name: s, label: {key: a}}]}")[0]
	whole := hidden.DeepCopy()
	whole.Spec.Timing.OpenAfterSeconds = 5
	set := &gateset.Set{}
	for _, ng := range []*v1alpha1.NodeGate{hidden, whole} {
		set = gateset.New(set, gateset.Snapshot{Source: v1alpha1.SourceCRD, Complete: true, Gates: []*v1alpha1.NodeGate{ng}}, gate.KeyPolicy{})
	}
	if g, _ := set.Gate("g"); g.OpenAfter != 5*time.Second || set.Since["g"] != set.Seq {
		t.Errorf("the gate opens after %s, as since set %d of %d", g.OpenAfter, set.Since["g"], set.Seq)
	}
}
