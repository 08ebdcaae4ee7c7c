// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/internal/gate"
)

// operators names, for well-known daemons, the Deployments without which they do
// not become ready on a new node: whatever their namespace, for installations
// differ in that.
var operators = map[string][]string{
	"cilium":                             {"cilium-operator"},
	"calico-node":                        {"tigera-operator"},
	"nvidia-device-plugin-daemonset":     {"gpu-operator"},
	"nvidia-driver-daemonset":            {"gpu-operator"},
	"nvidia-container-toolkit-daemonset": {"gpu-operator"},
}

const partOf = "app.kubernetes.io/part-of"

func deploymentName(d *appsv1.Deployment) string { return d.Namespace + "/" + d.Name }

func operatorDoesNotTolerate(j *judge, s *subject) (hits []hit) {
	for _, ds := range j.daemons(s) {
		for i := range j.Deployments {
			d := &j.Deployments[i]
			if !slices.Contains(operators[ds.Name], d.Name) {
				continue
			}
			if lacks := j.lockedOut(s, d); lacks != "" {
				hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s, which DaemonSet %s needs, does not tolerate %s", deploymentName(d), ds, lacks)})
			}
		}
	}
	return hits
}

func siblingDoesNotTolerate(j *judge, s *subject) (hits []hit) {
	for _, ds := range j.daemons(s) {
		part := ds.Labels[partOf]
		for i := range j.Deployments {
			d := &j.Deployments[i]
			if part == "" || d.Namespace != ds.Namespace || d.Labels[partOf] != part || slices.Contains(operators[ds.Name], d.Name) {
				continue
			}
			if lacks := j.lockedOut(s, d); lacks != "" {
				hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s, part of %s as DaemonSet %s is, does not tolerate %s", deploymentName(d), part, ds, lacks)})
			}
		}
	}
	return hits
}

// appName is the label by which nodegate's own Deployment is known.
const appName = "app.kubernetes.io/name"

func nodegateDoesNotTolerate(j *judge, s *subject) (hits []hit) {
	if s.Mode != "" && !s.Spec.Enforces() {
		return nil
	}
	for i := range j.Deployments {
		d := &j.Deployments[i]
		if d.Labels[appName] != "nodegate" && d.Spec.Template.Labels[appName] != "nodegate" {
			continue
		}
		if lacks := j.lockedOut(s, d); lacks != "" {
			hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s does not tolerate %s", deploymentName(d), lacks)})
		}
	}
	return hits
}

// lockedOut says which taints keep a Deployment off every node on which it could
// run: all of these are the gate's, and there are some. Empty if it has a way out.
func (j *judge) lockedOut(s *subject, d *appsv1.Deployment) string {
	template := &d.Spec.Template.Spec
	lacks := untolerated(template.Tolerations, s.Taints())
	if len(lacks) == 0 || len(s.nodes) == 0 {
		return ""
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(template.NodeSelector, template.Affinity)
	own := 0
	for _, n := range j.Nodes {
		if fits, err := affinity.Match(placed(n)); err != nil || !fits || !enduring(n, d) {
			continue
		}
		if !slices.Contains(s.nodes, n) {
			return ""
		}
		own++
	}
	if own == 0 {
		return "" // it runs nowhere as it is
	}
	return strings.Join(lacks, " nor ")
}

// enduring tells whether a Deployment tolerates the taints that a node has for
// good, such as that of a control plane. Those that come and go do not count.
func enduring(n *gate.Node, d *appsv1.Deployment) bool {
	for _, t := range n.Taints {
		if t.Key == "node-role.kubernetes.io/control-plane" && !tolerates(d.Spec.Template.Spec.Tolerations, t) {
			return false
		}
	}
	return true
}
