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
	// istioTaint is the key of the only taint of the controller.
	istioTaint = "NodeReadiness"
	// maxSignals is the maximum number of signals of a gate. If there are more, they are
	// divided among several gates with the same taint.
	maxSignals = 16
)

// istio converts one configuration.
type istio struct {
	*converter
	signals []v1alpha1.Signal
	names   names
	// seen contains the previous requirements, by namespace and selector.
	seen map[[2]string]bool
}

// Istio converts the ConfigMap of Istio's node readiness controller (istio-cni-taint, in
// Istio 1.8 to 1.17), or one of its files: a list of {name, namespace, selector}. The result
// is one gate that opens when each of these has a ready pod.
func Istio(source Source) *Result {
	i := istio{newConverter(istioTool, source), nil, names{}, map[[2]string]bool{}}
	if documents := i.read(source.Data); len(documents) > 0 && documents[0].Kind != yaml.MappingNode {
		i.file(documents)
	} else {
		i.configMaps(documents)
	}
	if len(i.signals) == 0 && i.errors() == 0 {
		i.errorf(0, "the input names no pods: there is nothing to wait for")
	}
	if len(i.signals) > 0 {
		i.gate()
	}
	return i.result()
}

func (i *istio) configMaps(documents []*yaml.Node) {
	for _, object := range i.objects(documents) {
		line := object["kind"].line
		if object.at("kind") != "ConfigMap" {
			i.errorf(max(line, 1), "the document is neither a ConfigMap nor a list of {name, namespace, selector}")
			continue
		}
		for _, file := range i.dataFiles(object, line) {
			if strings.TrimSpace(file.content) != "" { // Istio's controller accepts an empty list
				i.file(i.readDataFile(file))
			}
		}
	}
}

// file reads the list in a file.
func (i *istio) file(documents []*yaml.Node) {
	n := i.single(documents)
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		i.errorf(n.Line, "the document is not a list of {name, namespace, selector}")
		return
	}
	for _, item := range n.Content {
		if f, ok := i.mapping(item, "the entry", "name", "selector", "namespace"); ok {
			i.entry(resolve(item).Line, f)
		}
	}
}

// entry reads an entry. Each comma-separated part of its selector requires a pod of its own.
func (i *istio) entry(line int, f fields) {
	if !f.has("namespace") || f.at("namespace") == "" {
		i.errorf(line, "the entry has no namespace, so that a pod of any namespace satisfies it, even one of an unprivileged user: "+
			"add the namespace of the pods")
		return
	}
	if !f.has("selector") || strings.TrimSpace(f.at("selector")) == "" {
		i.errorf(line, "the entry has no selector, so that any pod of the namespace satisfies it: add a selector for the relevant pods")
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
		i.notef(f["selector"].line, "the selector %q requires %d pods, one for each comma-separated part, "+
			"instead of one pod with all of these labels; the gate's signals preserve this", selector, len(parts))
	}
}

func (i *istio) part(f fields, namespace, part string) {
	line := f["selector"].line
	if part == "" {
		i.errorf(line, "the selector has an empty part, so that any pod of the namespace satisfies it: remove the comma")
		return
	}
	requirements, err := labels.ParseToRequirements(part)
	if err != nil {
		i.errorf(line, "the selector is split at commas, and %q is invalid: %s", part, err)
		return
	}
	selector, err := selectorOf(requirements)
	if err != nil {
		i.errorf(line, "the selector %q: %s", part, err)
		return
	}
	at := [2]string{namespace, part}
	if i.seen[at] {
		i.notef(line, "pods with %q in namespace %s are required twice, which has no further effect", part, namespace)
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

// gate adds as many gates as the signals require.
func (i *istio) gate() {
	ready := v1alpha1.Signal{Name: i.names.unique("node ready")}
	ready.Condition = &v1alpha1.ConditionSignal{Type: string(corev1.NodeReady), Status: string(corev1.ConditionTrue)}
	signals := append([]v1alpha1.Signal{ready}, i.signals...)
	for len(signals) > 0 {
		n := min(len(signals), maxSignals)
		i.add(0, ofTaint(istioTaint, ""), v1alpha1.NodeGateSpec{
			Taint:    v1alpha1.Taint{Key: istioTaint, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen: signals[:n], ReclosePolicy: v1alpha1.RecloseOnRegression, ExistingNodes: v1alpha1.ExistingClose,
			Timing: undamped(), Budget: unbudgeted(),
		})
		signals = signals[n:]
	}
	if len(i.gates) > 1 {
		i.noteInput(fmt.Sprintf("a gate can have %d signals, so there are %d gates; they share the taint, which is on a node while one of them is closed",
			maxSignals, len(i.gates)))
	}
	i.noteInput("a node counts as ready if its Ready condition is True; Istio's controller uses the condition with the newest heartbeat, " +
		"regardless of its type, and therefore keeps healthy nodes tainted")
	i.noteInput("a pod is not ready if it is terminating, finished, a mirror pod, or known only from before a reboot; for Istio's controller, it is")
	i.noteInput("one ready pod for each selector keeps the gate open; Istio's controller taints the node whenever another matching pod is not ready")
	i.noteInput(fmt.Sprintf(birthNote, i.tool))
	i.noteInput(fmt.Sprintf(undampedNote, i.tool))
	i.noteInput(fmt.Sprintf(unbudgetedNote, i.tool))
}
