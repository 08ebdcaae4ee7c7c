// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Apart reports whether two gates with these node selectors are on different nodes: the
// selectors contradict each other, or each of them selects a node and none is selected by both.
// nodes are the labels of the existing nodes; nil if they are unknown. New nodes can lack labels
// of existing ones, and a pool can get nodes in another zone, of another architecture or of spot
// capacity: that a selector excludes a label, or requires such a property, does not keep it apart.
func Apart(a, b labels.Selector, nodes iter.Seq[labels.Set]) bool {
	if a == nil || b == nil {
		return false
	}
	if contradict(a, b) {
		return true
	}
	if nodes == nil {
		return false
	}
	kindA, kindB := kind(a), kind(b)
	someA, someB := false, false
	for set := range nodes {
		if kindA.Matches(set) && kindB.Matches(set) {
			return false
		}
		someA, someB = someA || a.Matches(set), someB || b.Matches(set)
	}
	return someA && someB
}

// contradict reports whether no node can match both selectors.
func contradict(a, b labels.Selector) bool {
	ofA, _ := a.Requirements()
	ofB, _ := b.Requirements()
	all := slices.Concat(ofA, ofB)
	return slices.ContainsFunc(all, func(r labels.Requirement) bool { return !satisfiable(r.Key(), all) })
}

// satisfiable reports whether some value of a label, or its absence, matches all requirements.
func satisfiable(key string, all []labels.Requirement) bool {
	sets := []labels.Set{nil, {key: "a value that none of them contains"}}
	for i := range all {
		for value := range all[i].Values() {
			sets = append(sets, labels.Set{key: value})
		}
	}
	return slices.ContainsFunc(sets, func(set labels.Set) bool {
		return !slices.ContainsFunc(all, func(r labels.Requirement) bool { return r.Key() == key && !r.Matches(set) })
	})
}

// kind returns the part of a selector that requires labels, except for properties that the nodes
// of any pool can have.
func kind(s labels.Selector) labels.Selector {
	all, _ := s.Requirements()
	return labels.NewSelector().Add(slices.DeleteFunc(slices.Clone(all), func(r labels.Requirement) bool {
		return r.Matches(labels.Set{}) || ofAnyPool(r.Key())
	})...)
}

// ofAnyPool reports whether the label is the name, location, architecture or capacity type of a
// node. Nodes of any pool can have any value of these: GPU nodes can become spot nodes.
func ofAnyPool(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelArchStable, "beta.kubernetes.io/arch", "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType",
		"cloud.google.com/gke-spot", "cloud.google.com/gke-provisioning", "kubernetes.azure.com/scalesetpriority":
		return true
	}
	return strings.HasPrefix(key, "topology.") || strings.HasPrefix(key, "failure-domain.beta.kubernetes.io/")
}
