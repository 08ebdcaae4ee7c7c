// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	nidhoggTool = "nidhogg"
	// nidhoggPrefix is the default prefix of its taint keys.
	nidhoggPrefix = "nidhogg.uswitch.com"
)

// nidhogg converts one configuration.
type nidhogg struct {
	*converter
	prefix   string
	selector v1alpha1.LabelSelector
	// delay is the configured delay in seconds before a taint is removed, and delayLine its
	// line.
	delay, delayLine int
	seen             map[[2]string]bool
}

// Nidhogg converts a configuration of nidhogg (of uswitch, or of its successor by pelotech),
// or a ConfigMap that contains one. Each DaemonSet becomes a gate.
func Nidhogg(source Source) *Result {
	n := nidhogg{converter: newConverter(nidhoggTool, source), prefix: nidhoggPrefix, seen: map[[2]string]bool{}}
	if root := n.single(n.read(source.Data)); root != nil {
		n.document(root)
	}
	return n.result()
}

func (n *nidhogg) document(root *yaml.Node) {
	if root.Kind == yaml.MappingNode {
		if object, ok := n.mapping(root, "the document"); ok && object.at("kind") == "ConfigMap" {
			files := n.dataFiles(object, root.Line)
			if len(files) > 1 {
				n.errorf(files[1].offset, "the ConfigMap contains several files, but nidhogg reads one: keep only that one")
				return
			}
			for _, file := range files {
				if inner := n.single(n.readDataFile(file)); inner != nil {
					n.configuration(inner)
				}
			}
			return
		}
	}
	n.findings = nil // configuration reports the same problems
	n.configuration(root)
}

func (n *nidhogg) configuration(root *yaml.Node) {
	f, ok := n.mapping(root, "the configuration", "taintNamePrefix", "taintRemovalDelayInSeconds", "daemonsets", "nodeSelector")
	if !ok {
		return
	}
	if f.has("taintNamePrefix") {
		if prefix, ok := n.str(f["taintNamePrefix"], "taintNamePrefix"); ok && prefix != "" {
			n.prefix = prefix
		}
	}
	if f.has("taintRemovalDelayInSeconds") {
		v, err := f["taintRemovalDelayInSeconds"], error(nil)
		if n.delay, err = strconv.Atoi(v.Value); err != nil || v.ShortTag() != "!!int" || n.delay < 0 {
			n.errorf(v.line, "taintRemovalDelayInSeconds is not a number of seconds")
		}
		n.delayLine = v.line
	}
	n.readSelector(f, root.Line)
	if !f.has("daemonsets") {
		n.errorf(root.Line, `the configuration has no "daemonsets": there is nothing to wait for`)
		return
	}
	items := n.items(f["daemonsets"], "daemonsets")
	if f["daemonsets"].Kind == yaml.SequenceNode && len(items) == 0 {
		n.errorf(f["daemonsets"].line, "daemonsets is empty: there is nothing to wait for")
	}
	for _, item := range items {
		n.daemonSet(resolve(item))
	}
	n.noteDifferences()
}

// readSelector reads nodeSelector in one of its forms: pelotech's list of selectors, or
// uswitch's map of labels.
func (n *nidhogg) readSelector(f fields, line int) {
	v, ok := f["nodeSelector"]
	switch {
	case !ok || v.ShortTag() == "!!null":
		n.errorf(line, "there is no nodeSelector: nidhogg then uses that of each DaemonSet, which is not in this file. "+
			"Add it, for example nodeSelector: [kubernetes.io/os=linux], or nodeSelector: {} for every node")
	case v.Kind == yaml.MappingNode:
		all, _ := n.mapping(v.Node, "nodeSelector")
		for _, key := range slices.Sorted(maps.Keys(all)) { // errors in a stable order
			value, ok := n.str(all[key], key)
			if !ok {
				continue
			}
			if n.selector.MatchLabels == nil {
				n.selector.MatchLabels = map[string]string{}
			}
			n.selector.MatchLabels[key] = value
		}
	case v.Kind == yaml.SequenceNode && len(v.Content) == 0:
		n.errorf(v.line, "an empty list selects no node: write nodeSelector: {} for every node")
	case v.Kind == yaml.SequenceNode:
		n.readSelectors(v)
	default:
		n.errorf(v.line, "nodeSelector is neither a list of selectors nor a mapping of labels, and nidhogg ignores it: write it as a list")
	}
}

func (n *nidhogg) readSelectors(v field) {
	var all []labels.Requirement
	for _, item := range v.Content {
		item = resolve(item)
		text, ok := n.str(field{item, item.Line}, "the selector")
		if !ok {
			continue
		}
		requirements, err := labels.ParseToRequirements(text)
		if err != nil {
			n.errorf(item.Line, "the selector %q is invalid: %s", text, err)
		}
		all = append(all, requirements...)
	}
	selector, err := selectorOf(all)
	if err != nil {
		n.errorf(v.line, "nodeSelector: %s", err)
	}
	n.selector = selector
	if len(v.Content) > 1 {
		n.addFinding(v.line, Note, "a node must match every entry of nodeSelector, as in nidhogg's documentation; nidhogg 0.6.0 uses the last entry only")
	}
}

func (n *nidhogg) daemonSet(item *yaml.Node) {
	f, ok := n.mapping(item, "the entry", "name", "namespace")
	if !ok {
		return
	}
	name, hasName := n.text(f, "name", "the entry", item.Line)
	namespace, hasNamespace := n.text(f, "namespace", "the entry", item.Line)
	if !hasName || !hasNamespace {
		return
	}
	if n.seen[[2]string{namespace, name}] {
		n.addFinding(item.Line, Note, fmt.Sprintf("the DaemonSet %s/%s is listed twice, which has no further effect", namespace, name))
		return
	}
	n.seen[[2]string{namespace, name}] = true
	key := n.prefix + "/" + namespace + "." + name
	signal := v1alpha1.Signal{Name: "daemon"}
	signal.DaemonSet = &v1alpha1.DaemonSetSignal{Namespace: namespace, Name: name}
	spec := v1alpha1.NodeGateSpec{
		NodeSelector: *n.selector.DeepCopy(),
		Taint:        v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
		OpenWhen:     []v1alpha1.Signal{signal}, ReclosePolicy: v1alpha1.RecloseOnRegression,
		ExistingNodes: v1alpha1.ExistingClose, Timing: undamped(), Budget: unbudgeted(),
	}
	spec.Timing.OpenAfterSeconds = int32(min(n.delay, 1<<30))
	g := n.add(item.Line, ofTaint(key, ""), spec)
	g.lines = map[string]int{"spec.timing.openAfterSeconds": n.delayLine}
}

func (n *nidhogg) noteDifferences() {
	if len(n.gates) == 0 {
		return
	}
	n.noteInput("a pod must be owned by the DaemonSet itself (by UID), be ready, and not be terminating or known only from before a reboot; " +
		"nidhogg accepts any owner of that name. DaemonSets of other API groups, such as ExtendedDaemonSet, are not waited for")
	n.noteInput(fmt.Sprintf("the annotation %s/ready-since is not written; its readers can use the gates' status and metrics instead", n.prefix))
	n.noteInput("taints under " + n.prefix + "/ of DaemonSets that are not in this file are not changed; nidhogg removes them")
	if n.delay > 0 {
		n.noteInput("the DaemonSet must have been ready for taintRemovalDelayInSeconds without interruption (openAfterSeconds); nidhogg waits without checking again")
	}
	n.noteInput(fmt.Sprintf(birthNote, n.tool))
	n.noteInput(fmt.Sprintf(undampedNote, n.tool))
	n.noteInput(fmt.Sprintf(unbudgetedNote, n.tool))
}
