// SPDX-License-Identifier: Apache-2.0

// Package nodediff determines which facts differ between two states of a Node.
package nodediff

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodegate/nodegate/internal/gate"
)

// SameFacts reports whether two states of a node are equal for decisions, apart from
// heartbeats (see SameHeartbeats).
func SameFacts(a, b *gate.Node) bool {
	return sameForAll(a, b) &&
		maps.Equal(a.Annotations, b.Annotations) &&
		maps.EqualFunc(a.Allocatable, b.Allocatable, resource.Quantity.Equal) &&
		maps.Equal(a.Info, b.Info) &&
		maps.Equal(a.Records, b.Records) &&
		slices.EqualFunc(a.Taints, b.Taints, SameTaint) &&
		slices.EqualFunc(a.Conditions, b.Conditions, sameCondition)
}

// SameHeartbeats reports whether the heartbeats of the conditions are equal. Few
// decisions depend on them.
func SameHeartbeats(a, b *gate.Node) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, func(a, b gate.Condition) bool { return a.Heartbeat.Equal(b.Heartbeat) })
}

// SameTaint reports whether two taints are equal, including their value and time.
func SameTaint(a, b corev1.Taint) bool {
	return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

// manyTaints is the number of taints above which a change of taints is a change of
// everything. The taints of two states are compared each with each, without allocations,
// and a kubelet may register with tens of thousands of them.
const manyTaints = 64

// Of returns the difference between two states of a node for which SameFacts is
// false. They may differ only in the order of a list.
func Of(old, now *gate.Node) gate.Change {
	if !sameForAll(old, now) {
		return gate.Everything()
	}
	var all []gate.Aspect
	differs := func(kind gate.AspectKind, name string) { all = append(all, gate.Aspect{Kind: kind, Name: name}) }
	for i := range now.Conditions {
		if !sameCondition(old.Conditions[i], now.Conditions[i]) {
			differs(gate.AspectCondition, now.Conditions[i].Type)
		}
	}
	if !SameHeartbeats(old, now) {
		differs(gate.AspectHeartbeats, "")
	}
	if !slices.EqualFunc(old.Taints, now.Taints, SameTaint) {
		if max(len(old.Taints), len(now.Taints)) > manyTaints {
			return gate.Everything()
		}
		changed := slices.Concat(missing(now.Taints, old.Taints), missing(old.Taints, now.Taints))
		if len(changed) == 0 { // their order differs, which expressions can read
			return gate.Everything()
		}
		for _, t := range changed {
			differs(gate.AspectTaint, t.Key)
		}
	}
	eachDifference(old.Records, now.Records, sameText, func(name string) { differs(gate.AspectRecord, name) })
	eachDifference(old.Annotations, now.Annotations, sameText, func(key string) { differs(gate.AspectAnnotation, key) })
	eachDifference(old.Allocatable, now.Allocatable, resource.Quantity.Equal, func(name string) { differs(gate.AspectAllocatable, name) })
	eachDifference(old.Info, now.Info, sameText, func(name string) { differs(gate.AspectNodeInfo, name) })
	if len(all) == 0 {
		return gate.Everything()
	}
	return gate.ChangeOf(all...)
}

// sameForAll reports whether two states are equal in everything that any gate may depend
// on. It requires both to have the same types of conditions in the same order, so that
// conditions can be compared by index; new conditions are rare.
func sameForAll(a, b *gate.Node) bool {
	return a.UID == b.UID &&
		a.BootID == b.BootID &&
		a.ShuttingDown == b.ShuttingDown &&
		a.Created.Equal(b.Created) &&
		maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Overrides, b.Overrides) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(a, b gate.Condition) bool {
			return a.Type == b.Type && (a.Type != string(corev1.NodeReady) || sameCondition(a, b))
		})
}

// sameCondition reports whether two states of a condition differ at most in their
// heartbeats.
func sameCondition(a, b gate.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Transition.Equal(b.Transition)
}

func sameText(a, b string) bool { return a == b }

// missing returns the elements of all that are not in some. The time that it takes grows
// with the product of their numbers.
func missing(some, all []corev1.Taint) (rest []corev1.Taint) {
	for _, t := range all {
		if !slices.ContainsFunc(some, func(other corev1.Taint) bool { return SameTaint(t, other) }) {
			rest = append(rest, t)
		}
	}
	return rest
}

// eachDifference calls differs for each key whose values differ or that is in one map
// only.
func eachDifference[V any](a, b map[string]V, same func(V, V) bool, differs func(key string)) {
	for key, value := range a {
		if other, there := b[key]; !there || !same(value, other) {
			differs(key)
		}
	}
	for key := range b {
		if _, there := a[key]; !there {
			differs(key)
		}
	}
}
