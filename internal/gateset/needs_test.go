// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// objectGate returns a gate that waits for an object of each of these kinds.
func objectGate(name string, kinds ...string) string {
	text := "metadata: {name: " + name + "}\nspec:\n  nodeSelector: {matchLabels: {pool: a}}\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen:\n"
	for i, kind := range kinds {
		text += fmt.Sprintf("  - {name: s%d, object: {group: example.com, version: v1, kind: %s, expression: has(object.status)}}\n", i, kind)
	}
	return text
}

// kindsOf returns n names of kinds.
func kindsOf(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d", prefix, i))
	}
	return all
}

// The number of watches of objects is limited, whatever authors declare. Older gates come
// first, but only if they are in force. What is not watched is unknown, so a gate that needs it does not open.
func TestWatchesOfObjectsAreBounded(t *testing.T) {
	declared := clitest.Declare(t,
		objectGate("a-younger", append(kindsOf("Other", 16), "Old0")...),
		objectGate("b-full", kindsOf("Full", gateset.ObjectSourcesMax-9)...),
		objectGate("c-older", kindsOf("Old", 8)...),
		strings.Replace(objectGate("d-oldest-not-in-force", kindsOf("Refused", gateset.ObjectSourcesMax)...), "example.com/a", "example.com/refused", 1),
	)
	for i := range declared {
		declared[i].CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-i), 0))
	}
	allowed, err := gate.ParseAllowedTaints([]string{"example.com/a"})
	if err != nil {
		t.Fatal(err)
	}
	set := gateset.Of(declared, gate.KeyPolicy{Allowed: allowed}, gateset.IgnoreStatus)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.RecordAnnotationPrefix + "a-younger": ""}}}
	for name, c := range map[string]struct {
		needs gate.Needs
		want  int
	}{
		"all":           {set.Needs(&gate.DaemonSets{}), gateset.ObjectSourcesMax},
		"of one node's": {set.NeedsOn(node, &gate.DaemonSets{}), 2},
	} {
		watched := make(map[string]bool)
		for _, q := range c.needs.Objects {
			watched[q.Kind] = true
		}
		if len(watched) != c.want || !watched["Old0"] || !watched["Other0"] || watched["Other1"] {
			t.Errorf("%s: %d kinds, want %d: %v", name, len(watched), c.want, watched)
		}
	}
	for name, want := range map[string]string{"c-older": "", "b-full": "", "a-younger": "objects Other1.v1.example.com: ", "d-oldest-not-in-force": "objects Refused0.v1.example.com: "} {
		g, _ := set.Gate(name)
		got := ""
		if err := set.ObjectsError(g); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
