// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Constants in the code of nodetaintshandler.
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
	handlerVariable    = "STARTUP_" // prefix of its environment variables
	// handlerName is the name of the Deployment and of the ServiceAccount in nodetaintshandler's
	// manifests.
	handlerName = "nodetaintshandler"
)

// defaultInitNamespace is the namespace of the initialization pods in nodetaintshandler's
// own manifests.
const defaultInitNamespace = metav1.NamespaceSystem

// handler converts one installation.
type handler struct {
	*converter
	// backfill specifies whether existing nodes are closed, and backfillLine is its line.
	backfill     bool
	backfillLine int
	// recognized reports whether an object of the input can belong to an installation.
	recognized bool
	// deployments are all Deployments of the input.
	deployments []handlerDeployment
	// namespaces are those of the DaemonSets of the initialization pods.
	namespaces []string
	// assumed reports whether the input has no such DaemonSets, so that the namespace is the
	// given one or the default.
	assumed bool
	// borrowers are those of these DaemonSets that use nodetaintshandler's ServiceAccount.
	borrowers []string
}

// NodeTaintsHandler converts an installation of nodetaintshandler. All of it is fixed except
// the environment, which is read from its Deployment among the objects of the input or from
// lines of NAME=VALUE. The input may be empty. The namespaces of initialization pods are
// those of the DaemonSets in the input or, if there are none, the given one or the default. It
// is an error if the given namespace is not that of the DaemonSets. "" means that none is given.
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
		h.readDeployment()
		if !h.recognized && h.errors() == 0 {
			h.errorf(0, "the input has neither a Deployment nor an initialization DaemonSet of nodetaintshandler: pass those of your installation, or no file for the default settings")
		}
	}
	h.chooseNamespaces(namespace)
	if h.errors() == 0 {
		h.gate()
	}
	return h.result()
}

// chooseNamespaces determines the namespaces in which initialization pods count.
func (h *handler) chooseNamespaces(given string) {
	if h.namespaces == nil {
		h.namespaces, h.assumed = []string{cmp.Or(given, defaultInitNamespace)}, true
		return
	}
	slices.Sort(h.namespaces)
	h.namespaces = slices.Compact(h.namespaces)
	if given != "" && !slices.Equal(h.namespaces, []string{given}) {
		h.errorf(0, "--init-namespace is %q, but the initialization DaemonSets of the input run in namespace %s: omit the flag, or correct their metadata.namespace",
			given, list(h.namespaces))
	}
}

// isEnvironment reports whether the first non-empty line has the form NAME=VALUE.
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
			h.errorf(n, "the line is not of the form NAME=VALUE")
			continue
		}
		if q := len(value) - 1; q > 0 && value[0] == value[q] && (value[0] == '"' || value[0] == '\'') {
			value = value[1:q]
		}
		h.variable(n, name, value)
	}
}

// variable reads one variable of the environment.
func (h *handler) variable(line int, name, value string) {
	switch {
	case name == handlerBackfill:
		h.backfill, h.backfillLine = value == "1", line
		if value != "1" {
			h.notef(line, "%s is %q instead of 1, so there is no backfill", name, value)
		}
	case name == handlerWebhook:
		h.notef(line, "%s has no effect: nodetaintshandler does not read it", name)
	case strings.HasPrefix(name, handlerVariable):
		h.errorf(line, "%s is unknown to nodetaintshandler: correct or remove it (known: %s, %s)", name, handlerBackfill, handlerWebhook)
	}
}

// object reads one Kubernetes object.
func (h *handler) object(object fields) {
	template := object.within("spec", "template")
	switch object.at("kind") {
	case "Deployment":
		h.deployments = append(h.deployments, h.deployment(object, template))
	case "DaemonSet":
		if template.within("metadata", "labels").at(handlerPodLabel) != handlerPodValue {
			return
		}
		h.recognized = true
		namespace := object.within("metadata").at("namespace")
		if namespace == "" {
			h.errorf(object["kind"].line, "the DaemonSet has no metadata.namespace: add the namespace in which it runs")
			return
		}
		h.namespaces = append(h.namespaces, namespace)
		if template.within("spec").at("serviceAccountName") == handlerName {
			h.borrowers = append(h.borrowers, namespace+"/"+object.within("metadata").at("name"))
		}
	}
}

// container reads the environment of a container.
func (h *handler) container(container fields) {
	if container.has("envFrom") && len(h.items(container["envFrom"], "envFrom")) > 0 {
		h.errorf(container["envFrom"].line, "the variables of envFrom are not in this file: write %s in env if they include it, and remove envFrom", handlerBackfill)
	}
	if container.has("env") {
		for _, v := range h.items(container["env"], "env") {
			h.env(v)
		}
	}
}

// env reads an environment variable of a container.
func (h *handler) env(n *yaml.Node) {
	f, ok := h.mapping(n, "the variable")
	if !ok {
		return
	}
	name, line := f.at("name"), resolve(n).Line
	if !strings.HasPrefix(name, handlerVariable) {
		return
	}
	if f.has("valueFrom") {
		h.errorf(f["valueFrom"].line, "the value of %s is not in this file: write it here", name)
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
	h.noteDifferences()
}

// signals returns a signal for the initialization pods. If there are several namespaces, a
// pod in one of them is sufficient.
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

func (h *handler) noteDifferences() {
	hint := ""
	if h.assumed {
		hint = " (--init-namespace specifies another namespace)"
	}
	h.noteInput("initialization pods count in namespace " + list(h.namespaces) + " only; nodetaintshandler accepts any pod with the label, " +
		"so that any user who can create pods can open the gate" + hint)
	h.noteInput("one ready pod opens the gate, as with nodetaintshandler; to wait for several initialization DaemonSets, use " +
		"one daemonSet signal for each of them")
	h.noteInput("a pod is not ready if it is terminating, finished, a mirror pod, or known only from an earlier machine of this name, even with " +
		"the annotation; for nodetaintshandler, it is (for pods that finish, use a completed signal). The pod's Ready condition is used instead " +
		"of its container statuses")
	h.noteInput("a taint with this key and effect but another value is corrected; nodetaintshandler adds a second one, which the API server rejects")
	h.noteInput("the gate does not touch nodes with " + handlerSkipLabel + "=" + handlerSkipValue + ", so the taint stays on those that carry it; nodetaintshandler's " +
		"webhook does not taint them, but the rest of it does not distinguish them")
	if len(h.borrowers) > 0 {
		h.noteInput("DaemonSet " + list(h.borrowers) + " uses the ServiceAccount " + handlerName + ": before you delete it, specify another one " +
			"with the permissions that the pods need, because without it, new pods cannot be created and new nodes stay closed")
	}
	if !h.backfill {
		return
	}
	h.noteInput("an existing node is closed if only daemon, mirror and finished pods run on it (existingNodes: CloseIfIdle); nodetaintshandler considers it idle if it has no pods " +
		"outside of kube-system and kube-public")
	h.noteInput("the backfill excludes nodes with " + handlerSkipLabel + "=" + handlerSkipValue + "; nodetaintshandler's does not")
	h.noteInput(fmt.Sprintf(unbudgetedNote, h.tool))
	h.noteInput("nodes with the annotation " + handlerCompletedAt + " of nodetaintshandler are not exempt from the backfill: nodegate uses its own records")
}
