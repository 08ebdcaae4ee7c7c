// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// overlap describes which of the nodes on which a DaemonSet can run a gate selects. Only the
// DaemonSet's nodeSelector and node affinity count, because the nodes' taints are unknown.
type overlap struct {
	// contradicts is true if no node can match both.
	contradicts bool
	// runs is true if the DaemonSet can run on an existing node, selects if the gate selects
	// one, and both if the gate selects one on which the DaemonSet can run.
	runs, selects, both bool
	// missed is the number of existing nodes on which the DaemonSet can run, and which the
	// gate does not select. Control plane nodes are not counted: gates often exclude them.
	missed int
	// excess is the number of existing nodes that the gate selects, and on which the DaemonSet
	// cannot run.
	excess int
}

// some reports whether the gate selects nodes on which the DaemonSet runs, as far as known.
func (o *overlap) some() bool { return !o.contradicts && (o.both || !o.runs) }

// overlap compares the nodes of a gate with those of a DaemonSet.
func (f *finder) overlap(ng *v1alpha1.NodeGate, d *daemon) (o overlap) {
	selector, err := ng.Spec.NodeSelector.AsSelector()
	if err != nil {
		return o // the gate is not accepted
	}
	pod := &d.Spec.Template.Spec
	o.contradicts = contradicts(selector, pod)
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *pod})
	for _, n := range f.Nodes {
		fits, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
		runs, selected := err == nil && fits, selector.Matches(n.Labels)
		o.runs, o.selects, o.both = o.runs || runs, o.selects || selected, o.both || runs && selected
		if _, isControlPlane := n.Labels[controlPlane]; runs && !selected && !isControlPlane {
			o.missed++
		}
		if selected && !runs {
			o.excess++
		}
	}
	return o
}

// contradicts reports whether a gate's nodeSelector excludes every value that a pod requires of
// a node's label.
func contradicts(selector labels.Selector, pod *corev1.PodSpec) bool {
	requirements, _ := selector.Requirements()
	excludes := func(key string, values ...string) bool {
		return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
			return r.Key() == key && !slices.ContainsFunc(values, func(v string) bool { return r.Matches(labels.Set{key: v}) })
		})
	}
	for key, value := range pod.NodeSelector {
		if excludes(key, value) {
			return true
		}
	}
	terms := requiredTerms(pod)
	return len(terms) == 1 && slices.ContainsFunc(terms[0].MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		return r.Operator == corev1.NodeSelectorOpIn && excludes(r.Key, r.Values...)
	})
}
