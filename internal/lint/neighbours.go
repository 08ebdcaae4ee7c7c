// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// deschedulerEvicts finds gates whose taints make the descheduler evict pods. A reboot
// counts, because the pods that were on the node before are still bound to it.
func deschedulerEvicts(j *checker, s *subject) (hits []hit) {
	on := "nodes in use"
	switch {
	case s.Mode == v1alpha1.ModePaused:
		return nil
	case s.closesInUse():
	case s.Reclose == v1alpha1.RecloseNever:
		return nil
	default:
		on = "nodes that have rebooted"
	}
	for i := range j.DeschedulerPolicies {
		p := &j.DeschedulerPolicies[i]
		if len(s.nodes) > 0 && !selectsAny(p.Nodes, s.nodes) {
			continue
		}
		for k := range p.Profiles {
			if profile := &p.Profiles[k]; profile.Evicts(s.TaintInUse()) {
				hits = append(hits, hit{"configmap/" + p.ConfigMap, fmt.Sprintf("%s evicts pods that do not tolerate %s, which the gate adds to %s; %s",
					p.Describe(profile), gate.TaintText(s.TaintInUse()), on, profile.Exemption(s.TaintInUse()))})
			}
		}
	}
	return hits
}

func selectsAny(s labels.Selector, nodes []*gate.Node) bool {
	for _, n := range nodes {
		if s.Matches(n.Labels) {
			return true
		}
	}
	return false
}

// kueueReplacesNodes finds gates whose taints make Kueue's topology-aware scheduling treat
// nodes as failed. Reboots do not count, because Kueue treats a node that is not ready as
// failed anyway.
func kueueReplacesNodes(j *checker, s *subject) (hits []hit) {
	t := s.TaintInUse()
	if !s.closesInUse() || s.closesOnLostNodes() || t.Effect == corev1.TaintEffectPreferNoSchedule {
		return nil
	}
	for i := range j.ResourceFlavors {
		f := flavor{&j.ResourceFlavors[i]}
		topology, own := f.topology(), 0
		for _, n := range s.nodes {
			if f.selects(n) {
				own++
			}
		}
		if topology == "" || own == 0 || gate.Tolerates(f.tolerations(), t.Core()) {
			continue
		}
		hits = append(hits, hit{"resourceflavor/" + f.GetName(), fmt.Sprintf("the gate adds %s to nodes in use, and ResourceFlavor %s, which has the topology %s, selects %d of the gate's %d nodes and does not tolerate the taint",
			gate.TaintText(t), f.GetName(), topology, own, len(s.nodes))})
	}
	return hits
}

// flavor is a ResourceFlavor of Kueue.
type flavor struct{ *unstructured.Unstructured }

// topology returns the name of the flavor's Topology, or "" if Kueue does not use
// topology-aware scheduling for it.
func (f flavor) topology() string {
	name, _, _ := unstructured.NestedString(f.Object, "spec", "topologyName")
	return name
}

// selects reports whether a node has the flavor's labels. The labels of the topology's levels
// are not compared.
func (f flavor) selects(n *gate.Node) bool {
	required, _, _ := unstructured.NestedStringMap(f.Object, "spec", "nodeLabels")
	return labels.SelectorFromSet(required).Matches(n.Labels)
}

// tolerations returns the tolerations that Kueue adds to all pods of the flavor, except those
// that end: after tolerationSeconds, the taint counts as not tolerated.
func (f flavor) tolerations() (all []corev1.Toleration) {
	var spec struct {
		Spec struct {
			Tolerations []corev1.Toleration `json:"tolerations"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(f.Object, &spec); err != nil {
		return nil
	}
	for _, t := range spec.Spec.Tolerations {
		if t.TolerationSeconds == nil {
			all = append(all, t)
		}
	}
	return all
}
