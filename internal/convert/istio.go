// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	istioTool = "Istio's node readiness controller"
	// istioTaint is the key of its only taint.
	istioTaint = "NodeReadiness"
	// maxSignals is how many signals a gate takes. Gates that share a taint open
	// a node together, so that more signals make more gates.
	maxSignals = 16
)

// istio converts one configuration.
type istio struct {
	*converter
	signals []v1alpha1.Signal
	names   names
	// seen are requirements by namespace and selector.
	seen map[[2]string]bool
}

// Istio converts the ConfigMap of Istio's node readiness controller
// (istio-cni-taint, in Istio 1.8 to 1.17), or one of its files: a list of
// {name, namespace, selector}. All of it becomes one gate that opens when each
// of these has its ready pod.
func Istio(source Source) *Result {
	i := istio{newConverter(istioTool, source), nil, names{}, map[[2]string]bool{}}
	for _, document := range i.read(source.Data) {
		i.document(document)
	}
	if len(i.signals) == 0 && i.errors() == 0 {
		i.lose(0, "it names no pods, so that there is nothing to wait for")
	}
	if len(i.signals) > 0 {
		i.gate()
	}
	return i.result()
}

func (i *istio) document(document *yaml.Node) {
	if document.Kind != yaml.MappingNode {
		i.entries(document)
		return
	}
	for _, object := range i.objects([]*yaml.Node{document}) {
		if object.at("kind") != "ConfigMap" {
			i.lose(document.Line, "this is neither a ConfigMap nor a list of {name, namespace, selector}")
			continue
		}
		for _, file := range i.dataFiles(object, document.Line) {
			for _, inner := range i.readInside(file) {
				i.entries(inner)
			}
		}
	}
}

func (i *istio) entries(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		i.lose(n.Line, "this is not a list of {name, namespace, selector}")
		return
	}
	for _, item := range n.Content {
		if f, ok := i.mapping(item, "the entry", "name", "selector", "namespace"); ok {
			i.entry(resolve(item).Line, f)
		}
	}
}

// entry reads an entry. Each part between the commas of its selector asks for a
// pod of its own.
func (i *istio) entry(line int, f fields) {
	if !f.has("namespace") || f.at("namespace") == "" {
		i.lose(line, "the entry names no namespace, so that a pod of any namespace will do, which anybody can create: "+
			"add the namespace of the pods")
		return
	}
	if !f.has("selector") || strings.TrimSpace(f.at("selector")) == "" {
		i.lose(line, "the entry has no selector, so that any pod of the namespace will do: add a selector of the pods that matter")
		return
	}
	namespace, ok := i.str(f["namespace"], "namespace")
	selector, isText := i.str(f["selector"], "selector")
	if !ok || !isText {
		return
	}
	parts := strings.Split(selector, ",")
	for _, part := range parts {
		i.part(f, namespace, strings.TrimSpace(part))
	}
	if len(parts) > 1 {
		i.find(f["selector"].line, Note, fmt.Sprintf("the selector %q asks for %d pods, one for each part between commas, "+
			"and not for one pod with all of these labels: so do the gate's signals", selector, len(parts)))
	}
}

func (i *istio) part(f fields, namespace, part string) {
	line := f["selector"].line
	if part == "" {
		i.lose(line, "the selector has an empty part, so that any pod of the namespace will do: remove the comma")
		return
	}
	requirements, err := labels.ParseToRequirements(part)
	if err != nil {
		i.lose(line, "the selector is split at each comma, and %q cannot be read: %s", part, err)
		return
	}
	selector, err := selectorOf(requirements)
	if err != nil {
		i.lose(line, "the selector %q: %s", part, err)
		return
	}
	at := [2]string{namespace, part}
	if i.seen[at] {
		i.find(line, Note, fmt.Sprintf("pods with %q in namespace %s are asked for twice, which is once", part, namespace))
		return
	}
	i.seen[at] = true
	name := f.at("name")
	if label(name) == "" {
		name = part
	}
	signal := v1alpha1.Signal{Name: i.names.unique(name)}
	signal.Pods = &v1alpha1.PodsSignal{Namespace: namespace, Selector: selector}
	i.signals = append(i.signals, signal)
}

// gate makes as many gates as the signals need.
func (i *istio) gate() {
	ready := v1alpha1.Signal{Name: i.names.unique("node ready")}
	ready.Condition = &v1alpha1.ConditionSignal{Type: string(corev1.NodeReady), Status: string(corev1.ConditionTrue)}
	signals := append([]v1alpha1.Signal{ready}, i.signals...)
	for len(signals) > 0 {
		n := min(len(signals), maxSignals)
		i.add(0, ofTaint(istioTaint, ""), v1alpha1.NodeGateSpec{
			Taint:    v1alpha1.Taint{Key: istioTaint, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen: signals[:n], ReclosePolicy: v1alpha1.RecloseOnRegression, ExistingNodes: v1alpha1.ExistingClose,
			Timing: atOnce(), Budget: unbudgeted(),
		})
		signals = signals[n:]
	}
	if len(i.gates) > 1 {
		i.tell(fmt.Sprintf("a gate takes %d signals, so that there are %d gates; they share the taint, which is on while one of them is closed",
			maxSignals, len(i.gates)))
	}
	i.tell("a node counts as ready by its Ready condition; Istio's controller goes by the condition with the newest heartbeat, " +
		"whichever that is, and so keeps healthy nodes tainted")
	i.tell("a pod that is terminating, finished, a mirror pod, or known only from before a reboot is not ready; for Istio's controller it was")
	i.tell("one ready pod of each selector keeps the gate open; Istio's controller taints the node whenever another one of them is not ready")
	i.tell(fmt.Sprintf(tellBirth, i.tool))
	i.tell(fmt.Sprintf(tellAtOnce, i.tool))
	i.tell(fmt.Sprintf(tellUnbudgeted, i.tool))
}
