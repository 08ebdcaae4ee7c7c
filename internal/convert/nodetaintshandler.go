// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// What nodetaintshandler has written into its code.
const (
	handlerTool        = "nodetaintshandler"
	handlerTaintKey    = "startup.k8s.io/initializing"
	handlerTaintValue  = "wait"
	handlerPodLabel    = "startup.k8s.io/component"
	handlerPodValue    = "init"
	handlerReady       = "startup.k8s.io/ready"
	handlerCompletedAt = "startup.k8s.io/completedAt"
	handlerSkipLabel   = "kubernetes.azure.com/mode"
	handlerSkipValue   = "system"
	handlerBackfill    = "STARTUP_BACKFILL"
	handlerWebhook     = "STARTUP_WEBHOOK"
)

// DefaultInitNamespace is where nodetaintshandler's own manifests have the
// initialization pods.
const DefaultInitNamespace = metav1.NamespaceSystem

// handler converts one set-up.
type handler struct {
	*converter
	// backfill tells whether nodes of before are closed; backfillLine where.
	backfill     bool
	backfillLine int
	// namespaces are those of the DaemonSets with the initialization pods.
	namespaces []string
}

// NodeTaintsHandler converts a set-up of nodetaintshandler. All of it is fixed
// but the environment, which is read from a Deployment among the objects of the
// input or from lines of NAME=VALUE; the input may be empty. Initialization pods
// are looked for in the namespaces of the DaemonSets in the input or, where
// there are none, in the one given.
func NodeTaintsHandler(source Source, namespace string) *Result {
	h := handler{converter: newConverter(handlerTool, source)}
	switch {
	case len(bytes.TrimSpace(source.Data)) == 0:
	case isEnvironment(source.Data):
		h.lines()
	default:
		for _, object := range h.objects(h.read(source.Data)) {
			h.object(object)
		}
	}
	if h.namespaces == nil {
		h.namespaces = []string{namespace}
	}
	slices.Sort(h.namespaces)
	h.namespaces = slices.Compact(h.namespaces)
	if h.errors() == 0 {
		h.gate()
	}
	return h.result()
}

// isEnvironment tells whether the first line that says something is NAME=VALUE.
func isEnvironment(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			name, _, found := bytes.Cut(bytes.TrimPrefix(line, []byte("export ")), []byte("="))
			return found && !bytes.ContainsAny(name, ": {[\t")
		}
	}
	return false
}

// lines reads an environment.
func (h *handler) lines() {
	n := 0
	for line := range strings.Lines(string(h.source.Data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !found {
			h.lose(n, "this is not NAME=VALUE")
			continue
		}
		if q := len(value) - 1; q > 0 && value[0] == value[q] && (value[0] == '"' || value[0] == '\'') {
			value = value[1:q]
		}
		h.variable(n, name, value)
	}
}

// variable takes up one variable of the environment.
func (h *handler) variable(line int, name, value string) {
	switch {
	case name == handlerBackfill:
		h.backfill, h.backfillLine = value == "1", line
		if value != "1" {
			h.find(line, Note, fmt.Sprintf("%s is %q, which is not 1, so that there is no backfill", name, value))
		}
	case name == handlerWebhook:
		h.find(line, Note, name+" means nothing: nodetaintshandler never reads it")
	case strings.HasPrefix(name, "STARTUP_"):
		h.lose(line, "nodetaintshandler knows no %s: correct or remove it (known: %s, %s)", name, handlerBackfill, handlerWebhook)
	}
}

// object looks at one Kubernetes object.
func (h *handler) object(object fields) {
	template := object.within("spec", "template")
	switch object.at("kind") {
	case "Deployment":
		containers, ok := template.within("spec")["containers"]
		if !ok {
			return
		}
		for _, n := range h.items(containers, "containers") {
			if container, ok := h.mapping(n, "the container"); ok && container.has("env") {
				for _, v := range h.items(container["env"], "env") {
					h.env(v)
				}
			}
		}
	case "DaemonSet":
		if template.within("metadata", "labels").at(handlerPodLabel) != handlerPodValue {
			return
		}
		namespace := object.within("metadata").at("namespace")
		if namespace == "" {
			h.lose(object["kind"].line, "the DaemonSet has no metadata.namespace: add the one that it runs in")
			return
		}
		h.namespaces = append(h.namespaces, namespace)
	}
}

// env reads a variable of a container.
func (h *handler) env(n *yaml.Node) {
	f, ok := h.mapping(n, "the variable")
	if !ok {
		return
	}
	name, line := f.at("name"), resolve(n).Line
	if !strings.HasPrefix(name, "STARTUP_") {
		return
	}
	if f.has("valueFrom") {
		h.lose(f["valueFrom"].line, "the value of %s is not in this file: write it here", name)
		return
	}
	value := ""
	if f.has("value") {
		if value, ok = h.str(f["value"], "value"); !ok {
			return
		}
		line = f["value"].line
	}
	h.variable(line, name, value)
}

// gate adds the gate.
func (h *handler) gate() {
	spec := v1alpha1.NodeGateSpec{
		NodeSelector: v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelSelectorRequirement{
			{Key: handlerSkipLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{handlerSkipValue}},
		}},
		Taint:              v1alpha1.Taint{Key: handlerTaintKey, Value: handlerTaintValue, Effect: corev1.TaintEffectNoSchedule},
		ReclosePolicy:      v1alpha1.RecloseNever,
		OpenedAtAnnotation: handlerCompletedAt,
		OpenWhen:           h.signals(),
	}
	if h.backfill {
		spec.ExistingNodes = v1alpha1.ExistingCloseIfIdle
		spec.Budget = unbudgeted()
	}
	g := h.add(0, ofTaint(handlerTaintKey, ""), spec)
	g.lines = map[string]int{"spec.existingNodes": h.backfillLine}
	h.tellAll()
}

// signals makes a signal of the initialization pods. Of several namespaces, one
// will do.
func (h *handler) signals() []v1alpha1.Signal {
	used := names{}
	var sources []v1alpha1.NamedSource
	for _, namespace := range h.namespaces {
		sources = append(sources, v1alpha1.NamedSource{Name: used.unique(namespace), SignalSource: v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
			Namespace: namespace,
			Selector:  v1alpha1.LabelSelector{MatchLabels: map[string]string{handlerPodLabel: handlerPodValue}},
			ReadyBy:   v1alpha1.ReadyByEither, ReadyAnnotation: handlerReady,
		}}})
	}
	if len(sources) == 1 {
		return []v1alpha1.Signal{{Name: "init", SignalSource: sources[0].SignalSource}}
	}
	return []v1alpha1.Signal{{Name: "init", AnyOf: sources}}
}

func (h *handler) tellAll() {
	h.tell("initialization pods count in namespace " + list(h.namespaces) + "; nodetaintshandler takes any pod with the label, " +
		"so that whoever may create pods can open the gate (--namespace names another one)")
	h.tell("one ready pod opens the gate, as with nodetaintshandler; where there are several initialization DaemonSets, make it " +
		"one daemonSet signal for each to wait for all of them")
	h.tell("a pod that is terminating, or known only from an earlier machine of this name, is not ready; for nodetaintshandler it was. " +
		"Its container statuses are not looked at, its Ready condition is")
	h.tell("a taint of this key and effect with another value is put right; nodetaintshandler adds a second one, which the API server refuses")
	if !h.backfill {
		return
	}
	h.tell("a node of before is closed if nothing but daemon, mirror and finished pods run on it; nodetaintshandler takes it for idle if no pod is " +
		"outside of kube-system and kube-public")
	h.tell("the backfill leaves nodes with " + handlerSkipLabel + "=" + handlerSkipValue + " alone; nodetaintshandler's does not")
	h.tell(fmt.Sprintf(tellUnbudgeted, h.tool))
	h.tell("nodes that nodetaintshandler has stamped with " + handlerCompletedAt + " are not exempt from the backfill: nodegate goes by its own records")
}
