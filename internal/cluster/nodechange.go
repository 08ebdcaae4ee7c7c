// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodegate/nodegate/internal/gate"
)

// nodeNews is a node of which something has changed.
type nodeNews struct {
	node   string
	change gate.Change
}

// unheard is for those who do not ask for news.
func unheard(string, gate.Change) {}

// tellOf returns what tells the handler that one aspect of a node has changed.
func (f *Feed) tellOf(a gate.Aspect) func(node string) {
	change := gate.ChangeOf(a)
	return func(node string) { f.handler.NodeChanged(node, change) }
}

// everythingOf is that everything may have changed of these nodes.
func everythingOf(nodes []string) []nodeNews {
	all := make([]nodeNews, 0, len(nodes)+1)
	for _, name := range nodes {
		all = append(all, nodeNews{name, gate.Everything()})
	}
	return all
}

// changeOf tells what differs between two states of a node that are not the same, if
// only in an order.
func changeOf(old, now *gate.Node) gate.Change {
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
	if !sameHeartbeats(old, now) {
		differs(gate.AspectHeartbeats, "")
	}
	for _, t := range slices.Concat(missing(now.Taints, old.Taints), missing(old.Taints, now.Taints)) {
		differs(gate.AspectTaint, t.Key)
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

// sameForAll tells whether two states differ in nothing that every gate may look at.
// So that two lists of conditions can be held against each other, the same conditions
// must be in both; a condition that is new is rare.
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

// sameCondition tells whether two states of a condition differ in their heartbeats at
// most.
func sameCondition(a, b gate.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Transition.Equal(b.Transition)
}

func sameText(a, b string) bool { return a == b }

// missing returns those of all that are not among some.
func missing(some, all []corev1.Taint) (rest []corev1.Taint) {
	for _, t := range all {
		if !slices.ContainsFunc(some, func(other corev1.Taint) bool { return sameTaint(t, other) }) {
			rest = append(rest, t)
		}
	}
	return rest
}

// eachDifference tells of each key of which two maps do not say the same.
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
