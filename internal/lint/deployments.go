// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// operators maps well-known daemons to the Deployments without which they do not become
// ready on a new node. The namespace is not compared, because it depends on the
// installation.
var operators = map[string][]string{
	"cilium":                             {"cilium-operator"},
	"calico-node":                        {"tigera-operator", "calico-typha"},
	"nvidia-device-plugin-daemonset":     {"gpu-operator"},
	"nvidia-driver-daemonset":            {"gpu-operator"},
	"nvidia-container-toolkit-daemonset": {"gpu-operator"},
	// It finds istiod by name. Falco is not listed, because only some of its configurations
	// need DNS, and the DaemonSet's facts do not show which.
	"ztunnel": {"coredns", "kube-dns"},
}

const partOf = "app.kubernetes.io/part-of"

func deploymentName(d *appsv1.Deployment) string { return d.Namespace + "/" + d.Name }

func operatorDoesNotTolerate(j *checker, s *subject) (hits []hit) {
	for _, ds := range j.required(s) {
		for i := range j.Deployments {
			d := &j.Deployments[i]
			if !slices.Contains(operators[ds.Name], d.Name) {
				continue
			}
			if lacks := j.keptOff(s, d); lacks != "" {
				hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s, which DaemonSet %s needs, does not tolerate %s", deploymentName(d), ds, lacks)})
			}
		}
	}
	return hits
}

func siblingDoesNotTolerate(j *checker, s *subject) (hits []hit) {
	for _, ds := range j.required(s) {
		part := ds.Labels[partOf]
		for i := range j.Deployments {
			d := &j.Deployments[i]
			if part == "" || d.Namespace != ds.Namespace || d.Labels[partOf] != part || slices.Contains(operators[ds.Name], d.Name) {
				continue
			}
			if lacks := j.keptOff(s, d); lacks != "" {
				hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s, which like DaemonSet %s is part of %s, does not tolerate %s", deploymentName(d), ds, part, lacks)})
			}
		}
	}
	return hits
}

func nodegateDoesNotTolerate(j *checker, s *subject) (hits []hit) {
	if !s.Spec.Enforces() {
		return nil
	}
	for i := range j.Deployments {
		d := &j.Deployments[i]
		if d.Labels[v1alpha1.AppLabel] != v1alpha1.AppController && d.Spec.Template.Labels[v1alpha1.AppLabel] != v1alpha1.AppController {
			continue
		}
		if lacks := j.keptOff(s, d); lacks != "" {
			hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s does not tolerate %s", deploymentName(d), lacks)})
		}
	}
	return hits
}

// keptOff returns, as text, the taints that keep a Deployment off every node on which it
// could run. It returns "" if the Deployment tolerates the gate's taints, if the gate
// does not select all of these nodes, or if there are none.
func (j *checker) keptOff(s *subject, d *appsv1.Deployment) string {
	template := &d.Spec.Template.Spec
	lacks := untolerated(template.Tolerations, s.Taints())
	if len(lacks) == 0 || len(s.nodes) == 0 {
		return ""
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(template.NodeSelector, template.Affinity)
	own := 0
	for _, n := range j.Nodes {
		if !fits(affinity, n) || !j.toleratesPermanentTaints(n, template.Tolerations) {
			continue
		}
		if !slices.Contains(s.nodes, n) {
			return ""
		}
		own++
	}
	if own == 0 {
		return "" // it cannot run anyway
	}
	return strings.Join(lacks, " and ")
}

// toleratesPermanentTaints reports whether tolerations tolerate the taints that keep pods off a node
// permanently, such as that of a control plane or of a dedicated pool.
func (j *checker) toleratesPermanentTaints(n *gate.Node, tolerations []corev1.Toleration) bool {
	return !slices.ContainsFunc(j.lasting[n], func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !gate.Tolerates(tolerations, t)
	})
}
