// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
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
	prefix string
	effect corev1.TaintEffect
	// selector is nil if the configuration has no nodeSelector: each DaemonSet's own
	// applies then.
	selector *v1alpha1.LabelSelector
	// own contains the DaemonSets of the input by namespace and name.
	own map[[2]string]nidhoggDaemonSet
	// delay is the configured delay in seconds before a taint is removed, and delayLine its
	// line.
	delay, delayLine int
	seen             map[[2]string]bool
}

// Nidhogg converts a configuration of nidhogg (of uswitch, or of its successor by pelotech),
// or a ConfigMap or values of the Helm chart that contain one. Each DaemonSet becomes a gate.
// The input may also contain the DaemonSets, whose node selectors apply if the configuration
// has none.
func Nidhogg(source Source) *Result {
	n := nidhogg{
		converter: newConverter(nidhoggTool, source), prefix: nidhoggPrefix, effect: corev1.TaintEffectNoSchedule,
		own: map[[2]string]nidhoggDaemonSet{}, seen: map[[2]string]bool{},
	}
	if root := n.single(n.takeDaemonSets(n.read(source.Data))); root != nil {
		n.document(root)
	}
	return n.result()
}

func (n *nidhogg) document(root *yaml.Node) {
	before := len(n.findings)
	if root.Kind == yaml.MappingNode {
		object, ok := n.mapping(root, "the document")
		switch {
		case ok && object.at("kind") == kindConfigMap:
			n.configMap(object, root.Line)
			return
		case ok && object.has("configuration"):
			n.values(object)
			return
		}
	}
	n.findings = n.findings[:before] // configuration reports the same problems
	n.configuration(root)
}

func (n *nidhogg) configuration(root *yaml.Node) {
	f, ok := n.mapping(root, "the configuration",
		"taintNamePrefix", "taintEffect", "taintRemovalDelayInSeconds", "daemonsets", "nodeSelector")
	if !ok {
		return
	}
	n.readTaint(f)
	if f.has("taintRemovalDelayInSeconds") {
		v := f["taintRemovalDelayInSeconds"]
		var err error
		if n.delay, err = strconv.Atoi(v.Value); err != nil || v.ShortTag() != "!!int" || n.delay < 0 {
			n.errorf(v.line, "taintRemovalDelayInSeconds is not a number of seconds")
		}
		n.delayLine = v.line
	}
	n.readSelector(f)
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
func (n *nidhogg) readSelector(f fields) {
	v := f["nodeSelector"]
	switch {
	case !f.has("nodeSelector"):
	case v.Kind == yaml.MappingNode:
		n.selector = &v1alpha1.LabelSelector{MatchLabels: n.labels(v, "nodeSelector")}
		n.notef(v.line, "nodeSelector is a mapping, which only nidhogg 0.3.0 and earlier read; later versions ignore it and use "+
			"the nodeSelector of each DaemonSet: if your nidhogg is newer, remove it and convert again")
	case v.Kind == yaml.SequenceNode && len(v.Content) == 0:
		n.errorf(v.line, "an empty list selects no node, so nidhogg does nothing: remove nodeSelector to use the nodeSelector of each DaemonSet")
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
	n.selector = &selector
	if len(v.Content) > 1 {
		n.notef(v.line, "a node must match every entry of nodeSelector, as in nidhogg's documentation; nidhogg 0.6.0 to 0.8.1 use the last entry only")
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
		n.notef(item.Line, "the DaemonSet %s/%s is listed twice, which has no further effect", namespace, name)
		return
	}
	n.seen[[2]string{namespace, name}] = true
	selector, affinity, ok := n.selectorOf(namespace, name, item.Line)
	if !ok {
		return
	}
	key := n.prefix + "/" + namespace + "." + name
	signal := v1alpha1.Signal{Name: "daemon"}
	signal.DaemonSet = &v1alpha1.DaemonSetSignal{Namespace: namespace, Name: name}
	spec := v1alpha1.NodeGateSpec{
		NodeSelector: selector,
		Taint:        v1alpha1.Taint{Key: key, Effect: n.effect},
		OpenWhen:     []v1alpha1.Signal{signal}, ReclosePolicy: v1alpha1.RecloseOnRegression,
		ExistingNodes: v1alpha1.ExistingClose, Timing: undamped(), Budget: unbudgeted(),
	}
	spec.Timing.OpenAfterSeconds = int32(min(n.delay, 1<<30))
	g := n.add(item.Line, ofTaint(key, ""), spec)
	g.lines = map[string]int{"spec.timing.openAfterSeconds": n.delayLine}
	if affinity {
		n.noteGate(g, item.Line, "DaemonSet %s/%s also requires a node affinity, which nidhogg ignores: on nodes that only the affinity excludes, "+
			"the gate stays closed for ever, as nidhogg's taint does; exclude these nodes in the gate's nodeSelector", namespace, name)
	}
}

func (n *nidhogg) noteDifferences() {
	if len(n.gates) == 0 {
		return
	}
	n.noteInput("a pod must be owned by the DaemonSet itself (by UID), be ready, and not be terminating or known only from before a reboot; " +
		"nidhogg accepts any owner of that name. DaemonSets of other API groups, such as ExtendedDaemonSet, are not waited for")
	n.noteInput("if a DaemonSet has several pods on a node, nidhogg requires all of them to be ready; the gate requires the pod that the DaemonSet " +
		"controller keeps or, while a rollout with maxSurge is in progress, one of them")
	n.noteInput(fmt.Sprintf("the annotation %s/ready-since is not written; its readers can use the gates' status and metrics instead", n.prefix))
	n.noteInput("taints under " + n.prefix + "/ that belong to none of the gates stay on nodes for ever, because nidhogg no longer removes them: list them with " +
		"\"kubectl get nodes -o yaml | grep -o 'key: " + n.prefix + "/.*' | sort | uniq -c\", and remove each with \"kubectl taint nodes --all <key>-\"")
	if n.delay > 0 {
		n.noteInput("the DaemonSet must have been ready for taintRemovalDelayInSeconds without interruption (openAfterSeconds); nidhogg waits without checking again")
	}
	n.noteInput(fmt.Sprintf(birthNote, n.tool))
	n.noteInput(fmt.Sprintf(undampedNote, n.tool))
	n.noteInput(fmt.Sprintf(unbudgetedNote, n.tool))
}
