// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	kindConfigMap = "ConfigMap"
	kindDaemonSet = "DaemonSet"
	// nidhoggChartDelay is the default of taintRemovalDelayInSeconds in nidhogg's Helm chart.
	nidhoggChartDelay = 5
)

// nidhoggDaemonSet is the part of a DaemonSet that determines its nodes.
type nidhoggDaemonSet struct {
	selector v1alpha1.LabelSelector
	// affinity is true if the DaemonSet also requires a node affinity, which nidhogg ignores.
	affinity bool
}

// takeDaemonSets records the DaemonSets among the documents, including the items of lists,
// and returns the other documents.
func (n *nidhogg) takeDaemonSets(documents []*yaml.Node) []*yaml.Node {
	var rest []*yaml.Node
	for _, document := range documents {
		candidates := []*yaml.Node{document}
		if items, ok := fieldsOf(resolve(document))["items"]; ok && items.Kind == yaml.SequenceNode {
			candidates = items.Content
		}
		for _, candidate := range candidates {
			candidate = resolve(candidate)
			if ds := fieldsOf(candidate); ds.at("kind") == kindDaemonSet {
				n.recordDaemonSet(ds, candidate.Line)
			} else {
				rest = append(rest, candidate)
			}
		}
	}
	if len(rest) == 0 && n.errors() == 0 {
		n.errorf(0, "the input has no configuration of nidhogg")
	}
	return rest
}

func (n *nidhogg) recordDaemonSet(ds fields, line int) {
	metadata, spec := ds.within("metadata"), ds.within("spec", "template", "spec")
	if metadata.at("name") == "" || metadata.at("namespace") == "" {
		n.errorf(line, "the DaemonSet has no metadata.name or no metadata.namespace")
		return
	}
	var out nidhoggDaemonSet
	if spec.has("nodeSelector") {
		out.selector.MatchLabels = n.labels(spec["nodeSelector"], "nodeSelector")
	}
	node := spec.within("affinity", "nodeAffinity")
	out.affinity = node.has("requiredDuringSchedulingIgnoredDuringExecution")
	n.own[[2]string{metadata.at("namespace"), metadata.at("name")}] = out
}

// selectorOf returns the node selector of the gate for a DaemonSet: the configured one or,
// as in nidhogg, the DaemonSet's own. affinity is true if the DaemonSet is known to require a
// node affinity, too.
func (n *nidhogg) selectorOf(namespace, name string, line int) (selector v1alpha1.LabelSelector, affinity, ok bool) {
	own, found := n.own[[2]string{namespace, name}]
	if n.selector != nil {
		return *n.selector.DeepCopy(), own.affinity, true
	}
	if !found {
		n.errorf(line, "the configuration has no nodeSelector, so nidhogg uses that of DaemonSet %[1]s/%[2]s, which is not in the input: add the DaemonSet "+
			"as a YAML document of its own (kubectl get daemonset -n %[1]s %[2]s -o yaml), or copy its nodeSelector to the configuration, for example as "+
			"nodeSelector: [kubernetes.io/os=linux]. Do not select more nodes: a gate never opens on nodes on which the DaemonSet does not run", namespace, name)
		return selector, false, false
	}
	n.noteInput("nodeSelector is that of the DaemonSet, as with nidhogg; if it changes in the DaemonSet, change it in the gate, too")
	return *own.selector.DeepCopy(), own.affinity, true
}

// configMap converts the configuration in a ConfigMap.
func (n *nidhogg) configMap(object fields, line int) {
	files := n.dataFiles(object, line)
	if len(files) > 1 {
		n.errorf(files[1].offset, "the ConfigMap contains several files, but nidhogg reads one: keep only that one")
		return
	}
	for _, file := range files {
		if inner := n.single(n.readDataFile(file)); inner != nil {
			n.configuration(inner)
		}
	}
}

// values converts the configuration in values of nidhogg's Helm chart.
func (n *nidhogg) values(values fields) {
	configuration := values["configuration"]
	n.noteInput("only configuration is converted; the chart's other values have no equivalent in gates")
	if f := values.within("configuration"); f != nil {
		if _, set := f["taintRemovalDelayInSeconds"]; !set {
			n.delay, n.delayLine = nidhoggChartDelay, configuration.line
			n.noteInput(fmt.Sprintf("openAfterSeconds is %d, the chart's default of taintRemovalDelayInSeconds", nidhoggChartDelay))
		}
	}
	n.configuration(configuration.Node)
}

// readTaint reads the prefix of the taints' keys, and their effect.
func (n *nidhogg) readTaint(f fields) {
	if f.has("taintNamePrefix") {
		if prefix, ok := n.str(f["taintNamePrefix"], "taintNamePrefix"); ok && prefix != "" {
			n.prefix = prefix
		}
	}
	if !f.has("taintEffect") {
		return
	}
	line := f["taintEffect"].line
	effect, ok := n.str(f["taintEffect"], "taintEffect")
	switch {
	case !ok || effect == "":
		return
	case !isEffect(effect):
		n.errorf(line, "taintEffect is %q, for which nidhogg uses NoSchedule: correct it (NoSchedule, PreferNoSchedule or NoExecute)", effect)
		return
	}
	n.effect = corev1.TaintEffect(effect)
	if n.effect != corev1.TaintEffectNoSchedule {
		n.notef(line, "nidhogg reads taintEffect since version 0.8.0; earlier versions use NoSchedule")
	}
}
