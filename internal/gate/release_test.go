// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestRelease(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule} }
	closedBy := func(key string) string {
		return Record{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Taint: key + ":NoSchedule", Source: v1alpha1.SourceCRD}.String()
	}
	const open = `{"state":"Open","reason":"SignalsHold","source":"crd"}`
	const openedByHand = `{"state":"Closed","taint":"a/a:NoSchedule","override":"Open","overrideSince":"2026-01-01T00:00:00Z"}`
	const overriddenClosed = `{"state":"Open","taint":"a/a:NoSchedule","override":"Closed","overrideSince":"2026-01-01T00:00:00Z"}`
	foreign, core := taint("example.com/pool"), taint("node.kubernetes.io/not-ready")
	tests := map[string]struct {
		node  Node
		gates []string // none for all
		want  Released
	}{
		"a node without gates": {
			node: Node{Taints: []corev1.Taint{foreign, core}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{foreign, core}}},
		},
		"a closed gate": {
			node: Node{Taints: []corev1.Taint{foreign, taint("a/a"), core}, Records: map[string]string{"a": closedBy("a/a")}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{foreign, core}, Records: map[string]string{"a": ""}, Changes: true},
				Gates: []string{"a"}, Removed: []corev1.Taint{taint("a/a")}},
		},
		"an open gate whose taint another writer added": {
			node: Node{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": open}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}},
		},
		"the same key with another effect is another taint": {
			node: Node{Taints: []corev1.Taint{{Key: "a/a", Effect: corev1.TaintEffectNoExecute}}, Records: map[string]string{"a": closedBy("a/a")}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{{Key: "a/a", Effect: corev1.TaintEffectNoExecute}}, Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}},
		},
		"the taint has another value now": {
			node: Node{Taints: []corev1.Taint{{Key: "a/a", Value: "x", Effect: corev1.TaintEffectNoSchedule}}, Records: map[string]string{"a": closedBy("a/a")}},
			want: Released{Decision: Decision{Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"},
				Removed: []corev1.Taint{{Key: "a/a", Value: "x", Effect: corev1.TaintEffectNoSchedule}}},
		},
		"two gates share a taint, both are removed": {
			node: Node{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": closedBy("a/a"), "b": closedBy("a/a")}},
			want: Released{Decision: Decision{Records: map[string]string{"a": "", "b": ""}, Changes: true}, Gates: []string{"a", "b"}, Removed: []corev1.Taint{taint("a/a")}},
		},
		"two gates share a taint, one is removed": {
			node:  Node{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": closedBy("a/a"), "b": closedBy("a/a")}},
			gates: []string{"a"},
			want:  Released{Decision: Decision{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}},
		},
		"another gate keeps its state": {
			node:  Node{Taints: []corev1.Taint{taint("a/a"), taint("b/b")}, Records: map[string]string{"a": closedBy("a/a"), "b": closedBy("b/b")}, Overrides: map[string]string{"b": "x"}},
			gates: []string{"a"},
			want:  Released{Decision: Decision{Taints: []corev1.Taint{taint("b/b")}, Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}, Removed: []corev1.Taint{taint("a/a")}},
		},
		"overridden open: the taint is foreign, and the override is removed": {
			node: Node{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": openedByHand}, Overrides: map[string]string{"a": "x"}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": ""}, Withdrawn: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}},
		},
		"overridden closed": {
			node: Node{Taints: []corev1.Taint{taint("a/a")}, Records: map[string]string{"a": overriddenClosed}},
			want: Released{Decision: Decision{Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}, Removed: []corev1.Taint{taint("a/a")}},
		},
		"an override without a record": {
			node: Node{Overrides: map[string]string{"a": "x"}},
			want: Released{Decision: Decision{Withdrawn: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}},
		},
		"an unreadable record, with a taint that may be its own": {
			node: Node{Taints: []corev1.Taint{foreign}, Records: map[string]string{"a": "garbage"}, Overrides: map[string]string{"a": "x"}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{foreign}}, Kept: []string{"a"}},
		},
		"an unreadable record, without a taint that may be its own": {
			node: Node{Taints: []corev1.Taint{core, taint("b/b")}, Records: map[string]string{"a": "garbage", "b": closedBy("b/b")}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{core}, Records: map[string]string{"a": "", "b": ""}, Changes: true},
				Gates: []string{"a", "b"}, Removed: []corev1.Taint{taint("b/b")}},
		},
		"a record that claims a taint of Kubernetes": {
			node: Node{Taints: []corev1.Taint{core}, Records: map[string]string{"a": closedBy("node.kubernetes.io/not-ready")}},
			want: Released{Decision: Decision{Taints: []corev1.Taint{core}, Records: map[string]string{"a": ""}, Changes: true}, Gates: []string{"a"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := append([]corev1.Taint(nil), test.node.Taints...)
			got := Release(&test.node, namedOrAll(test.gates))
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.node.Taints, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the facts were modified:\n%s", diff)
			}
		})
	}
}

func namedOrAll(gates []string) func(string) bool {
	return func(name string) bool { return len(gates) == 0 || slices.Contains(gates, name) }
}

// For any node, everything that does not belong to a gate stays, in its order, and
// nothing is left to release afterwards.
func TestReleaseLeavesTheRest(t *testing.T) {
	pool := []string{"a/a", "b/b", "c/c", "node.kubernetes.io/not-ready"}
	rapid.Check(t, func(t *rapid.T) {
		n := Node{Records: map[string]string{}, Overrides: map[string]string{}}
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(pool), func(s string) string { return s }).Draw(t, "taints") {
			n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		for _, name := range []string{"g", "h", "i"} {
			switch rapid.IntRange(0, 4).Draw(t, name) {
			case 1:
				n.Records[name] = Record{State: v1alpha1.StateClosed, Taint: rapid.SampledFrom(pool).Draw(t, "its taint") + ":NoSchedule"}.String()
			case 2:
				n.Records[name] = `{"state":"Open"}`
			case 3:
				n.Records[name] = "garbage"
			case 4:
				n.Overrides[name] = "x"
			}
		}
		gates := rapid.SliceOf(rapid.SampledFrom([]string{"g", "h", "i"})).Draw(t, "gates")
		named := namedOrAll(gates)
		got := Release(&n, named)

		recorded := func(key string, whose func(string) bool) bool {
			for name, raw := range n.Records {
				if r, err := ParseRecord(raw); err == nil && whose(name) && r.State == v1alpha1.StateClosed && r.RecordedTaint().Key == key {
					return true
				}
			}
			return false
		}
		var want []corev1.Taint
		for _, taint := range n.Taints {
			others := func(name string) bool { return !named(name) }
			if !recorded(taint.Key, named) || recorded(taint.Key, others) {
				want = append(want, taint)
			}
		}
		if diff := cmp.Diff(want, got.Taints, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("taints (-want +got):\n%s", diff)
		}
		after := Node{Taints: got.Taints, Records: map[string]string{}, Overrides: map[string]string{}}
		for name, raw := range n.Records {
			if _, gone := got.Records[name]; !gone {
				after.Records[name] = raw
			} else if !named(name) {
				t.Fatalf("the record of %s is removed", name)
			}
		}
		for name, raw := range n.Overrides {
			if _, gone := got.Withdrawn[name]; !gone {
				after.Overrides[name] = raw
			} else if !named(name) {
				t.Fatalf("the override of %s is removed", name)
			}
		}
		if again := Release(&after, named); again.Changes {
			t.Fatalf("there is something left to release: %+v", again)
		}
	})
}

// The conditions of the named gates are removed, also if nothing else is left of them.
func TestReleaseRemovesConditions(t *testing.T) {
	s := aNode().closed("g").condition("g", corev1.ConditionTrue).condition("h", corev1.ConditionTrue)
	out := Release(&s.facts.Node, func(name string) bool { return name == "h" })
	if c, removed := out.Conditions["h"]; !out.Changes || len(out.Conditions) != 1 || !removed || c != nil || len(out.Records) > 0 {
		t.Errorf("gate h: %+v", out)
	}
	out = Release(&s.facts.Node, func(string) bool { return true })
	if len(out.Conditions) != 2 || len(out.Records) != 1 || len(out.Gates) != 2 {
		t.Errorf("all gates: %+v", out)
	}
}
