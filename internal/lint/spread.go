// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
)

// workload is a Deployment or a StatefulSet.
type workload struct {
	name string
	pod  *corev1.PodSpec
}

func (j *checker) workloads() (all []workload) {
	for i := range j.Deployments {
		d := &j.Deployments[i]
		all = append(all, workload{"Deployment " + deploymentName(d), &d.Spec.Template.Spec})
	}
	for i := range j.StatefulSets {
		s := &j.StatefulSets[i]
		all = append(all, workload{"StatefulSet " + s.Namespace + "/" + s.Name, &s.Spec.Template.Spec})
	}
	return all
}

// spreadCountsClosedNodes finds workloads whose pods can wait for a node on which the gate is
// closed. All of them are one finding, because clusters can have hundreds, and the gate is
// not the cause.
func spreadCountsClosedNodes(j *checker, s *subject) []hit {
	if s.Mode == v1alpha1.ModePaused || s.closesOnLostNodes() || len(s.nodes) == 0 {
		return nil
	}
	gated := make(map[string]bool, len(s.nodes))
	for _, n := range s.nodes {
		gated[n.Name] = true
	}
	var names []string
	for _, w := range j.workloads() {
		strict := strictConstraints(w.pod)
		if len(strict) == 0 || len(untolerated(w.pod.Tolerations, s.Taints())) == 0 {
			continue
		}
		if slices.ContainsFunc(strict, func(key string) bool { return j.emptiesDomain(w.pod, key, gated) }) {
			names = append(names, w.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []hit{{"", fmt.Sprintf("the topologySpreadConstraints of %s count nodes on which the gate is closed: %s", printer.Count(len(names), "workload"), printer.Some(names, namesMax))}}
}

// strictConstraints returns the topology keys of the constraints that must be satisfied and
// ignore taints. A constraint without a selector counts no pods.
func strictConstraints(pod *corev1.PodSpec) (keys []string) {
	for i := range pod.TopologySpreadConstraints {
		c := &pod.TopologySpreadConstraints[i]
		honors := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && !honors && c.LabelSelector != nil {
			keys = append(keys, c.TopologyKey)
		}
	}
	return keys
}

// emptiesDomain reports whether the gate can close on all nodes of a domain on which a pod
// could run. The scheduler still counts the domain then, and no pod can be added to it.
func (j *checker) emptiesDomain(pod *corev1.PodSpec, topologyKey string, gated map[string]bool) bool {
	affinity := nodeaffinity.NewRequiredNodeAffinity(pod.NodeSelector, pod.Affinity)
	empties := make(map[string]bool)
	for _, n := range j.Nodes {
		domain, has := n.Labels[topologyKey]
		if !has || !j.toleratesPermanentTaints(n, pod.Tolerations) || !fits(affinity, n) {
			continue
		}
		before, seen := empties[domain]
		empties[domain] = gated[n.Name] && (before || !seen)
	}
	for _, all := range empties {
		if all && len(empties) > 1 {
			return true
		}
	}
	return false
}

func fits(affinity nodeaffinity.RequiredNodeAffinity, n *gate.Node) bool {
	match, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
	return err == nil && match
}
