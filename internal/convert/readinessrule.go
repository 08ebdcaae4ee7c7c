// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	ruleTool  = "node-readiness-controller"
	ruleGroup = "readiness.node.x-k8s.io/"
	ruleKind  = "NodeReadinessRule"
)

// readinessRules converts NodeReadinessRules.
type readinessRules struct{ *converter }

// NodeReadinessRules converts each NodeReadinessRule among the objects of the input to a
// gate.
func NodeReadinessRules(source Source) *Result {
	r := readinessRules{newConverter(ruleTool, source)}
	found := 0
	for _, object := range r.objects(r.read(source.Data)) {
		kind, version := object.at("kind"), object.at("apiVersion")
		switch {
		case kind == "":
			r.errorf(object.line(), "the object has no kind: if it is a %s, add its apiVersion and kind, otherwise remove it", ruleKind)
		case kind != ruleKind:
			r.notef(object["kind"].line, "a %s is not a %s, and is ignored", kind, ruleKind)
		case !strings.HasPrefix(version, ruleGroup):
			r.errorf(object["kind"].line, "the %s has the apiVersion %q instead of one that begins with %s: correct or remove it", ruleKind, version, ruleGroup)
		default:
			found++
			r.rule(object)
		}
	}
	if found == 0 && r.errors() == 0 {
		r.errorf(0, "the input has no %s", ruleKind)
	}
	r.noteDifferences()
	return r.result()
}

func (r readinessRules) noteDifferences() {
	if len(r.gates) == 0 {
		return
	}
	r.noteInput("a gate is not accepted if a NodeReadinessRule manages its taint key: apply the gates, stop the node-readiness-controller, and within ten " +
		"minutes delete its rules (including their finalizer, which nothing else removes), so that the gates also close on nodes that register in between")
	r.noteModes()
	r.noteInput(fmt.Sprintf(birthNote, r.tool))
	if slices.ContainsFunc(r.gates, func(g Gate) bool { return g.NodeGate.Spec.ReclosePolicy == v1alpha1.RecloseOnRegression }) {
		r.noteInput(fmt.Sprintf(unbudgetedNote, r.tool))
		r.noteInput("a continuous rule closes as soon as a condition is not met (closeAfterSeconds: 0), and also after a reboot or while the node is unreachable; " +
			"remove timing to use the default damping of 120 seconds")
	}
	r.noteInput("labels, annotations and status of a rule are not converted")
}

// noteModes explains what differs because of the rules' modes.
func (r readinessRules) noteModes() {
	for i := range r.gates {
		if r.gates[i].NodeGate.Spec.ReclosePolicy == v1alpha1.RecloseNever {
			r.noteInput("a bootstrap-only gate closes an existing node only if it carries the taint (existingNodes: Ignore); the " +
				"node-readiness-controller ignores nodes with its annotation readiness.k8s.io/bootstrap-completed-UID (the rule's UID; " +
				"before 0.4, the rule's name), which nodegate does not read, and taints all other nodes on which a condition is not met, including nodes that match the nodeSelector only later")
		} else {
			r.noteInput("the conditions are expressions, because a condition signal ignores the status Unknown, whereas the " +
				"node-readiness-controller closes the node; if a reporter that fails should not close nodes, use condition: {type: TYPE, " +
				"status: STATUS} instead, with which kubectl gate why also names the condition")
		}
	}
}

// rule converts one rule.
func (r readinessRules) rule(object fields) {
	line := object["kind"].line
	for _, key := range slices.Sorted(maps.Keys(object)) { // errors in a stable order
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "status"}, key) {
			r.errorf(object[key].line, "the rule has the unknown key %q: correct or remove it", key)
		}
	}
	name := object.within("metadata").at("name")
	if name == "" {
		r.errorf(line, "the rule has no metadata.name")
	}
	if !object.has("spec") {
		r.errorf(line, "the rule has no spec")
		return
	}
	at := object["spec"].line
	f, ok := r.mapping(object["spec"].Node, "spec", "conditions", "conditionPolicy", "enforcementMode", "taint", "nodeSelector", "dryRun")
	if !ok {
		return
	}
	var spec v1alpha1.NodeGateSpec
	before := r.errors()
	spec.NodeSelector = r.nodeSelector(f, at)
	spec.Taint = r.taint(f, at)
	conditions := r.conditions(f, at)
	r.mode(&spec, f, at)
	spec.OpenWhen = r.signals(conditions, spec.ReclosePolicy, f)
	if r.errors() > before || name == "" {
		return
	}
	g := r.add(line, name, spec)
	g.lines = map[string]int{"spec.mode": f["dryRun"].line, "spec.taint": f["taint"].line, "spec.openWhen": f["conditions"].line}
	if n := len(conditions); n > maxSignals && f.at("conditionPolicy") != policyAnyOf {
		r.noteGate(g, f["conditions"].line, "the rule has %d conditions, but a gate can have %d signals: a signal covers several conditions, so that the "+
			"gate still opens only while all of them are met; kubectl gate why then names the signal instead of the condition", n, maxSignals)
	}
	if deletion := object.within("metadata")["deletionTimestamp"]; deletion.Node != nil {
		r.noteGate(g, deletion.line, "the rule is being deleted, so the node-readiness-controller no longer applies it, and removes its taint: remove the gate if the rule is not to be replaced")
	}
	if g.NodeGate.Name != name {
		r.noteGate(g, line, "the rule %q becomes the gate %q, because %s", name, g.NodeGate.Name, whyRenamed(name))
	}
}

// whyRenamed returns the reason why a gate cannot have the name of its rule.
func whyRenamed(rule string) string {
	if label(rule) == rule {
		return "another gate has the name"
	}
	return "a gate's name must be a DNS label"
}

// mode reads the rule's enforcementMode and dryRun.
func (r readinessRules) mode(spec *v1alpha1.NodeGateSpec, f fields, line int) {
	switch mode, ok := r.text(f, "enforcementMode", "spec", line); {
	case !ok:
	case mode == "bootstrap-only":
		spec.ReclosePolicy = v1alpha1.RecloseNever
		// Most existing nodes without the taint have finished bootstrapping, after which the
		// rule never taints them again. Nodes with the taint are adopted in any case.
		spec.ExistingNodes = v1alpha1.ExistingIgnore
	case mode == "continuous":
		spec.ReclosePolicy = v1alpha1.RecloseOnRegression
		spec.ExistingNodes, spec.Budget = v1alpha1.ExistingClose, unbudgeted()
		spec.Timing.CloseAfterSeconds = undamped().CloseAfterSeconds
	default:
		r.errorf(f["enforcementMode"].line, "enforcementMode is %q, want bootstrap-only or continuous", mode)
	}
	if f.has("dryRun") && r.boolean(f["dryRun"], "dryRun") {
		spec.Mode = v1alpha1.ModeDryRun
	}
}

func (r readinessRules) taint(f fields, line int) v1alpha1.Taint {
	if !f.has("taint") {
		r.errorf(line, "spec has no taint")
		return v1alpha1.Taint{}
	}
	line = f["taint"].line
	t, ok := r.mapping(f["taint"].Node, "taint", "key", "value", "effect", "timeAdded")
	if !ok {
		return v1alpha1.Taint{}
	}
	key, _ := r.text(t, "key", "taint", line)
	effect, _ := r.text(t, "effect", "taint", line)
	if effect != "" && !isEffect(effect) {
		r.errorf(t["effect"].line, "the effect is %q, want NoSchedule, PreferNoSchedule or NoExecute", effect)
	}
	value := ""
	if t.has("value") {
		value, _ = r.str(t["value"], "value")
	}
	if t.has("timeAdded") {
		r.notef(t["timeAdded"].line, "timeAdded is ignored: it is set when the taint is added to a node")
	}
	return v1alpha1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

func (r readinessRules) nodeSelector(f fields, line int) v1alpha1.LabelSelector {
	var out v1alpha1.LabelSelector
	if !f.has("nodeSelector") {
		r.errorf(line, "spec has no nodeSelector: write nodeSelector: {} to select every node")
		return out
	}
	s, _ := r.mapping(f["nodeSelector"].Node, "nodeSelector", "matchLabels", "matchExpressions")
	if s.has("matchLabels") {
		out.MatchLabels = r.labels(s["matchLabels"], "matchLabels")
	}
	if !s.has("matchExpressions") {
		return out
	}
	for _, n := range r.items(s["matchExpressions"], "matchExpressions") {
		n = resolve(n)
		e, ok := r.mapping(n, "the expression", "key", "operator", "values")
		if !ok {
			continue
		}
		key, _ := r.text(e, "key", "the expression", n.Line)
		operator, _ := r.text(e, "operator", "the expression", n.Line)
		requirement := v1alpha1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOperator(operator)}
		if e.has("values") {
			for _, v := range r.items(e["values"], "values") {
				v = resolve(v)
				value, _ := r.str(field{v, v.Line}, "the value")
				requirement.Values = append(requirement.Values, value)
			}
		}
		out.MatchExpressions = append(out.MatchExpressions, requirement)
	}
	return out
}
