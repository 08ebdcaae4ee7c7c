// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/writers"
)

func notAccepted(_ *checker, s *subject) []hit {
	if s.acceptance.Accepted {
		return nil
	}
	return []hit{{"", fmt.Sprintf("%s (%s)", s.acceptance.Message, s.acceptance.Reason)}}
}

func contended(_ *checker, s *subject) []hit {
	if c := s.contention(); c != nil && c.Reason != v1alpha1.ReasonGatesContradict {
		return []hit{{"", c.Message}}
	}
	return nil
}

// gatesContradict finds gates that have no other writer: nodegate keeps their state.
func gatesContradict(_ *checker, s *subject) []hit {
	if c := s.contention(); c != nil && c.Reason == v1alpha1.ReasonGatesContradict {
		return []hit{{"", c.Message}}
	}
	return nil
}

// contention returns the gate's condition Contended if it is True, or nil.
func (s *subject) contention() *metav1.Condition {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionContended)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return c
}

// lateLabels are label prefixes that are not set when a Node is created, and the writers
// that set them later.
var lateLabels = []struct{ prefix, by string }{
	{"node-role.kubernetes.io/", "users and installers, because kubelets may not"},
	{"node-restriction.kubernetes.io/", "users and controllers, because kubelets may not"},
	{"topology.kubernetes.io/", "the cloud controller"},
	{"failure-domain.beta.kubernetes.io/", "the cloud controller"},
	{"node.kubernetes.io/instance-type", "the cloud controller"},
	{"beta.kubernetes.io/instance-type", "the cloud controller"},
	{"topology.ebs.csi.aws.com/", "the CSI driver"},
	{"topology.gke.io/", "the CSI driver"},
	{"feature.node.kubernetes.io/", "node-feature-discovery"},
	{"nvidia.com/", "the GPU Operator"},
	{"karpenter.sh/registered", "Karpenter"},
	{"karpenter.sh/initialized", "Karpenter"},
}

// lateLabel ignores labels with which kubelets registered, as far as the Nodes that were read
// completely show.
func lateLabel(j *checker, s *subject) (hits []hit) {
	if !s.waits() || j.Unread[Nodes] != nil {
		return nil
	}
	for _, key := range selectorKeys(s) {
		if j.registered(key) {
			continue
		}
		for _, l := range lateLabels {
			if strings.HasPrefix(key, l.prefix) {
				hits = append(hits, hit{"", fmt.Sprintf("nodeSelector uses the label %s, which is set later by %s", key, l.by)})
				break
			}
		}
	}
	return hits
}

// registered reports whether the label of every complete Node that has it was written by the
// node's kubelet. A process that contains more than the kubelet does not count.
func (j *checker) registered(label string) bool {
	found := false
	for i := range j.Samples {
		n := &j.Samples[i]
		if _, has := n.Labels[label]; !has {
			continue
		}
		byKubelet := func(m metav1.ManagedFieldsEntry) bool { return m.Manager == kubeletManager }
		if !slices.ContainsFunc(labelManagers(n, label), byKubelet) {
			return false
		}
		found = true
	}
	return found
}

func selectorKeys(s *subject) (keys []string) {
	if s.Broken {
		return nil
	}
	requirements, _ := s.Selector.Requirements()
	for i := range requirements {
		keys = append(keys, requirements[i].Key())
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// creationWindow is how long after a Node's creation a write may still be part of the
// creation, given that times have a resolution of a second.
const creationWindow = 2 * time.Second

// labelSetByOthers checks the managers of the labels of some Nodes. It ignores labels that
// lateLabel reports.
func labelSetByOthers(j *checker, s *subject) (hits []hit) {
	if !s.waits() {
		return nil
	}
	for _, key := range selectorKeys(s) {
		if slices.ContainsFunc(lateLabels, func(l struct{ prefix, by string }) bool { return strings.HasPrefix(key, l.prefix) }) {
			continue
		}
		for i := range j.Samples {
			n := &j.Samples[i]
			if manager, later := setLater(n, key); later {
				hits = append(hits, hit{"node/" + n.Name, fmt.Sprintf("nodeSelector uses the label %s, which %s set on node %s after its creation", key, manager, n.Name)})
				break
			}
		}
	}
	return hits
}

// setLater returns the writer other than the kubelet that set a label after the creation
// of the Node.
func setLater(n *corev1.Node, key string) (manager string, later bool) {
	if _, has := n.Labels[key]; !has {
		return "", false
	}
	for _, m := range labelManagers(n, key) {
		_, containsKubelet := managed(m.FieldsV1.GetRawBytes()).Annotations["f:"+kubeletAnnotation]
		if m.Manager == kubeletManager || containsKubelet || m.Time == nil || m.Time.Sub(n.CreationTimestamp.Time) <= creationWindow {
			return "", false // it may have been set at creation
		}
		manager, later = m.Manager, true
	}
	return manager, later
}

// labelManagers returns the entries of the Node's managers that own a label.
func labelManagers(n *corev1.Node, label string) (owners []metav1.ManagedFieldsEntry) {
	for _, m := range n.ManagedFields {
		if m.FieldsV1 == nil {
			continue
		}
		if _, owns := managed(m.FieldsV1.GetRawBytes()).Labels["f:"+label]; owns {
			owners = append(owners, m)
		}
	}
	return owners
}

// kubeletManager is the name of the kubelet's binary, which is also that of its manager.
const kubeletManager = "kubelet"

// kubeletAnnotation is set by kubelets only. In k3s and others, one process contains the kubelet and
// the controllers. It has one entry, whose time changes with each of its writes.
const kubeletAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// managedMetadata are the managed fields of an object's metadata.
type managedMetadata struct {
	Labels      map[string]json.RawMessage `json:"f:labels"`
	Annotations map[string]json.RawMessage `json:"f:annotations"`
}

// managed returns the managed fields of the metadata, or none if they cannot be read.
func managed(raw []byte) managedMetadata {
	var fields struct {
		Metadata managedMetadata `json:"f:metadata"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return managedMetadata{}
	}
	return fields.Metadata
}

// active reports whether a known writer changes its taint in its current configuration.
var active = map[string]func(*checker, *appsv1.Deployment) bool{
	writers.CiliumOperator: ciliumWrites,
	writers.Istiod: func(_ *checker, d *appsv1.Deployment) bool {
		return env(d, "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS") == "true"
	},
	writers.Kuma: func(_ *checker, d *appsv1.Deployment) bool {
		return env(d, "KUMA_RUNTIME_KUBERNETES_NODE_TAINT_CONTROLLER_ENABLED") == "true"
	},
	writers.NodeTaintsHandler: func(*checker, *appsv1.Deployment) bool { return true },
	writers.PDController:      pdRemoves,
}

// pdRemoves reports whether a container of the PD driver's controller removes the taint.
func pdRemoves(_ *checker, d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, "--run-taint-controller=true") || slices.Contains(c.Args, "--run-taint-controller")
	})
}

// ciliumWrites reports whether Cilium writes the taint, given its configuration and
// Cilium's defaults.
func ciliumWrites(j *checker, d *appsv1.Deployment) bool {
	if j.Unread[CiliumConfig] != nil {
		return false
	}
	config := j.CiliumConfigs[d.Namespace]
	return cmp.Or(config["remove-cilium-node-taints"], "true") == "true" || config["set-cilium-node-taints"] == "true"
}

func env(d *appsv1.Deployment, name string) string {
	for i := range d.Spec.Template.Spec.Containers {
		for _, e := range d.Spec.Template.Spec.Containers[i].Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

// runs reports whether a Deployment runs a known writer. Istio installs each revision as a
// Deployment of its own, which is named istiod-<revision>.
func runs(d *appsv1.Deployment, program string) bool {
	return d.Name == program || program == writers.Istiod && strings.HasPrefix(d.Name, writers.Istiod+"-")
}

// configuredKey returns the taint key with which a known writer is configured, or "".
func configuredKey(j *checker, program string, d *appsv1.Deployment) string {
	switch program {
	case writers.CiliumOperator:
		return j.CiliumConfigs[d.Namespace]["agent-not-ready-taint-key"]
	case writers.Istiod:
		return env(d, "PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME")
	}
	return ""
}

func otherWriter(j *checker, s *subject) (hits []hit) {
	for _, w := range writers.All {
		for i := range j.Deployments {
			d := &j.Deployments[i]
			if !runs(d, w.Program) || active[w.Program] == nil || !active[w.Program](j, d) {
				continue
			}
			key := cmp.Or(configuredKey(j, w.Program, d), w.Key)
			if slices.ContainsFunc(s.Taints(), func(t v1alpha1.Taint) bool { return t.Key == key }) {
				hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Deployment %s also writes %s: %s", deploymentName(d), key, w.How)})
			}
		}
	}
	return hits
}

// strayTaint finds taints with a key of the gate that no gate removes.
func strayTaint(j *checker, s *subject) (hits []hit) {
	nodes := make(map[string][]string)
	for _, n := range j.Nodes {
		for _, t := range n.Taints {
			if j.isStray(s, n, t) {
				text := gate.TaintText(v1alpha1.TaintOf(t))
				nodes[text] = append(nodes[text], n.Name)
			}
		}
	}
	for text, on := range nodes {
		hits = append(hits, hit{"", fmt.Sprintf("taint %s, which no gate removes, is on %d of %d nodes: %s", text, len(on), len(j.Nodes), printer.Some(on, namesMax))})
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.what, b.what) })
	return hits
}

// isStray reports whether a node's taint has a key of the gate, but none of the gates with this key
// and effect selects the node or has a record on it. Users who exclude a node from all gates decide
// about its taints. The value is not compared, because gates adopt taints with any value.
func (j *checker) isStray(s *subject, n *gate.Node, t corev1.Taint) bool {
	if !slices.ContainsFunc(s.Taints(), func(own v1alpha1.Taint) bool { return own.Key == t.Key }) {
		return false
	}
	return !slices.ContainsFunc(j.set.Gates, func(g gate.Gate) bool {
		return slices.ContainsFunc(g.Taints(), func(own v1alpha1.Taint) bool { return own.Key == t.Key && own.Effect == t.Effect }) &&
			(g.Broken || g.Selects(n.Labels) || gate.OptOut(n.Labels, g.PlainOptOut) != "" || n.Records[g.Name] != "")
	})
}

func noBootEvidence(_ *checker, s *subject) []hit {
	if !s.waits() || s.Reclose == v1alpha1.RecloseNever || s.ProvesBoot() || len(s.Signals) == 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("the gate closes again after a reboot (reclosePolicy: %s), but none of its signals depends on the boot", s.Reclose)}}
}

func selectsNoNode(j *checker, s *subject) []hit {
	if len(s.nodes) > 0 || j.Unread[Nodes] != nil || s.Broken {
		return nil
	}
	return []hit{{"", fmt.Sprintf("nodeSelector %q selects none of the %d nodes", selectorText(s.Selector), len(j.Nodes))}}
}
