// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
)

// byPreset returns the suggestion to use a preset.
func (f *finder) byPreset(m match) Suggestion {
	s := Suggestion{
		Use: UsePreset, Preset: m.preset.Name, Gate: f.newName(m.preset.Gate.Name, m.daemons[0].Namespace),
		daemons: m.daemons, taints: m.preset.Gate.Spec.Taints(), Manifest: m.preset.Text, tolerates: f.addsTolerations(&m.preset.Gate.Spec),
		nodes: nodesOf(&m.preset.Gate), spec: &m.preset.Gate.Spec, moved: m.moved,
	}
	for i, d := range m.daemons {
		for _, e := range slices.Concat(m.why[i:i+1], d.evidence) {
			if len(m.daemons) > 1 {
				e.Text = d.String() + ": " + e.Text
			}
			s.Why = append(s.Why, e)
		}
	}
	s.Certainty = best(s.Why)
	if len(m.moved) > 0 && !slices.ContainsFunc(s.Why, isStructuralAndOwn) {
		s.Certainty = Likely // only the name is the same
	}
	if len(m.moved) > 0 || s.Gate != m.preset.Gate.Name {
		s.adjust(m)
	}
	switch {
	case len(f.Nodes) == 0:
		s.Notes = append(s.Notes, "no node is known, and another preset may be for the same DaemonSet: check that the preset's nodeSelector selects nodes of this cluster")
	case m.selected == 0:
		s.Notes = append(s.Notes, "the preset selects no existing node: check that new nodes will have the labels of its nodeSelector")
	}
	for _, d := range m.daemons {
		if n := f.overlap(&m.preset.Gate, d).excess; n > 0 && m.requires(d) {
			s.Notes = append(s.Notes, fmt.Sprintf("the preset selects %s on which DaemonSet %s does not run, because of its nodeSelector or node affinity: the gate would never open on new ones of this kind, so narrow the preset's nodeSelector", printer.Count(n, "existing node"), d))
		}
	}
	return s
}

// requires reports whether the preset's gate opens only if the DaemonSet is ready on the node,
// even if it does not run there. Signals by labels hold on such nodes. If several DaemonSets
// have the labels of a pods signal, each may be sufficient on its nodes.
func (m *match) requires(d *daemon) bool {
	return slices.ContainsFunc(m.preset.Gate.Spec.OpenWhen, func(s v1alpha1.Signal) bool {
		if ds := s.DaemonSet; ds != nil {
			return waitsFor(&s.SignalSource, d) || m.moved[ds.Namespace+"/"+ds.Name] == d
		}
		return s.Pods != nil && len(m.daemons) == 1 && selectsPods(s.Pods, d)
	})
}

// isStructuralAndOwn reports whether evidence comes from the template, not from a preset.
func isStructuralAndOwn(e Evidence) bool { return isStructural(e) && e.Kind != KnownByPreset }

// adjust changes the preset's manifest to the names in the cluster.
func (s *Suggestion) adjust(m match) {
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(m.preset.Text), &object); err != nil {
		panic(err) // presets are part of the program
	}
	if s.Gate != m.preset.Gate.Name {
		object["metadata"] = map[string]any{"name": s.Gate}
		s.Notes = append(s.Notes, fmt.Sprintf("the gate's name is %s, because there is a gate %s that does not wait for the DaemonSet", s.Gate, m.preset.Gate.Name))
	}
	for _, from := range slices.Sorted(maps.Keys(m.moved)) {
		s.Notes = append(s.Notes, fmt.Sprintf("it waits for DaemonSet %s instead of %s", m.moved[from], from))
	}
	move(object["spec"], m.moved)
	s.Manifest = fmt.Sprintf("# Preset %s, adjusted to the names in the cluster.\n", m.preset.Name) + manifest(object)
}

// move changes the DaemonSets that the signals of a spec name.
func move(value any, moved map[string]*daemon) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			move(item, moved)
		}
	case map[string]any:
		if ds, is := v["daemonSet"].(map[string]any); is {
			if d := moved[fmt.Sprintf("%v/%v", ds["namespace"], ds["name"])]; d != nil {
				ds["namespace"], ds["name"] = d.Namespace, d.Name
			}
		}
		for _, item := range v {
			move(item, moved)
		}
	}
}

func manifest(object map[string]any) string {
	text, err := yaml.Marshal(object)
	if err != nil {
		panic(err) // it consists of strings, maps and lists
	}
	return string(text)
}

// byEvidence returns a suggestion for a DaemonSet that no preset knows. A gate that also
// waits for the CSI driver is better than a label, and a label is better than another gate.
func (f *finder) byEvidence(d *daemon) Suggestion {
	s := Suggestion{Why: d.evidence, Certainty: best(d.evidence), daemons: []*daemon{d}}
	if len(d.verified) == 0 && f.label(&s, d) {
		return s
	}
	s.Use, s.Gate = UseNodeGate, f.newName(label(d.Name, ""), d.Namespace)
	taint := v1alpha1.Taint{Key: keyPrefix + label(s.Gate, keySuffix), Effect: corev1.TaintEffectNoSchedule}
	s.taints = []v1alpha1.Taint{taint}
	selector, exact := placement(d)
	s.nodes = asSelector(selector)
	daemonSignal := map[string]any{"name": "daemon", "daemonSet": map[string]any{"namespace": d.Namespace, "name": d.Name}}
	spec := map[string]any{"nodeSelector": selector, "taint": map[string]any{"key": taint.Key, "effect": string(taint.Effect)}}
	// Unlike a signal by labels, that of a CSI driver does not hold where the DaemonSet does not run.
	if own := f.ownLabels(d); !exact && own != nil && len(d.verified) == 0 {
		daemonSignal = map[string]any{"name": "daemon", "daemonSets": map[string]any{"namespaces": []any{d.Namespace}, "selector": map[string]any{"matchLabels": own}}}
	} else if !exact {
		spec["mode"] = string(v1alpha1.ModeDryRun)
		s.Notes = append(s.Notes, "the mode is DryRun, because the nodeSelector may select nodes on which the DaemonSet does not run, because of its node affinity or of taints that it does not tolerate: change it to select only nodes on which the DaemonSet runs, and then remove the mode")
	}
	spec["openWhen"] = append([]any{daemonSignal}, driverSignals(d)...)
	s.Manifest = fmt.Sprintf("# %s: keeps pods off a node until DaemonSet %s is ready there.\n", s.Gate, d) + manifest(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeGate", "metadata": map[string]any{"name": s.Gate}, "spec": spec,
	})
	return s
}

// driverSignals returns a signal for each CSI driver that the DaemonSet registers.
func driverSignals(d *daemon) (signals []any) {
	for i, driver := range d.verified {
		name := "driver"
		if i > 0 {
			name = fmt.Sprintf("driver-%d", i+1)
		}
		signals = append(signals, map[string]any{"name": name, "csiDriver": map[string]any{"name": driver}})
	}
	return signals
}

// ownLabels returns labels that only this DaemonSet of its namespace has, and that do not
// change when it is upgraded: those of its pod selector, which is immutable. It returns nil if
// there are none, or more than a gate's selector can require. A daemonSets signal with these
// labels waits for the DaemonSet only on nodes on which it should run.
func (f *finder) ownLabels(d *daemon) map[string]string {
	if d.Spec.Selector == nil || len(d.Spec.Selector.MatchLabels) == 0 || len(d.Spec.Selector.MatchLabels) > maxLabels {
		return nil
	}
	own := labels.SelectorFromSet(d.Spec.Selector.MatchLabels)
	for i := range f.daemons {
		other := &f.daemons[i]
		if other.Namespace == d.Namespace && own.Matches(labels.Set(other.Labels)) != (other == d) {
			return nil
		}
	}
	return d.Spec.Selector.MatchLabels
}

// Keys of suggested gates start with a prefix that Cluster Autoscaler recognizes.
const (
	keyPrefix = "startup-taint.cluster-autoscaler.kubernetes.io/"
	keySuffix = "-not-ready"
)

// label returns a DNS label that starts with a name and ends with a suffix.
func label(name, suffix string) string {
	const labelMax = 63
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), labelMax-len(suffix))], "-") + suffix
}

// newName returns a name for a gate that no other gate has.
func (f *finder) newName(name, namespace string) string {
	unique := name
	for i := 1; f.names[unique]; i++ {
		unique = label(namespace+"-"+name, "")
		if i > 1 {
			unique = label(namespace+"-"+name, fmt.Sprintf("-%d", i))
		}
	}
	f.names[unique] = true
	return unique
}

// label makes the suggestion to label the DaemonSet, if an existing gate waits for all
// DaemonSets of its namespace with certain labels, on nodes on which the DaemonSet runs. It
// prefers the gate that misses the fewest of these. Without such a gate, it returns false.
func (f *finder) label(s *Suggestion, d *daemon) bool {
	var ng *v1alpha1.NodeGate
	var of *v1alpha1.DaemonSetsSignal
	missed := 0
	for i := range f.Gates {
		signal := f.labelSignal(&f.Gates[i], d)
		if signal == nil {
			continue
		}
		if o := f.overlap(&f.Gates[i], d); o.some() && (ng == nil || o.missed < missed) {
			ng, of, missed = &f.Gates[i], signal, o.missed
		}
	}
	if ng == nil {
		return false
	}
	s.Use, s.Gate, s.taints, s.labels = UseLabel, ng.Name, ng.Spec.Taints(), of.Selector.AsMeta().MatchLabels
	s.tolerates, s.nodes, s.spec = f.addsTolerations(&ng.Spec), nodesOf(ng), &ng.Spec
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.labels)) {
		all = append(all, key+"="+s.labels[key])
	}
	s.Label = strings.Join(all, ",")
	if missed > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("gate %s does not select %s on which the DaemonSet can run", ng.Name, printer.Count(missed, "existing node")))
	}
	return true
}

// labelSignal returns the signal of a gate that waits for a DaemonSet once it has a label. It
// returns nil if there is none.
func (f *finder) labelSignal(ng *v1alpha1.NodeGate, d *daemon) *v1alpha1.DaemonSetsSignal {
	if !f.set.Accepted(ng.Name) || !ng.Spec.Enforces() {
		return nil
	}
	for i := range ng.Spec.OpenWhen { // in anyOf, another signal may hold instead
		of := ng.Spec.OpenWhen[i].DaemonSets
		if of != nil && slices.Contains(of.Namespaces, d.Namespace) && len(of.Selector.MatchLabels) > 0 && len(of.Selector.MatchExpressions) == 0 && f.fitsLabels(of, d) {
			return of
		}
	}
	return nil
}

// fitsLabels reports whether a DaemonSet can get the labels that a signal selects. It must not
// have one of the keys already, because others may depend on its value. If the pod selector of a
// selected DaemonSet has one of the keys, the label identifies that DaemonSet.
func (f *finder) fitsLabels(of *v1alpha1.DaemonSetsSignal, d *daemon) bool {
	for key := range of.Selector.MatchLabels {
		if value, has := d.Labels[key]; has && value != of.Selector.MatchLabels[key] {
			return false
		}
		for i := range f.daemons {
			if other := &f.daemons[i]; selects(of, other) && selectsPodsBy(other, key) {
				return false
			}
		}
	}
	return true
}

// selectsPodsBy reports whether a DaemonSet's pod selector has a label key.
func selectsPodsBy(d *daemon, key string) bool {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return false
	}
	requirements, _ := selector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() == key })
}

// addsTolerations reports whether the API server adds tolerations of a gate's taints to the
// DaemonSets that the gate waits for.
func (f *finder) addsTolerations(spec *v1alpha1.NodeGateSpec) bool {
	return f.TolerationsPolicy && gateset.MayTolerate(spec)
}

const controlPlane = "node-role.kubernetes.io/control-plane"

// Limits of a gate's selector, v1alpha1.LabelSelector.
const (
	maxLabels      = 16
	maxExpressions = 8
	maxValues      = 64
)

// placement returns a node selector for the nodes on which a DaemonSet runs. exact is false
// if it selects other nodes as well.
func placement(d *daemon) (selector map[string]any, exact bool) {
	pod := &d.Spec.Template.Spec
	matchLabels, exact := expressibleLabels(pod.NodeSelector)
	// Without a toleration of all taints, it may be missing on tainted nodes.
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		exact = exact && d.tolerates(v1alpha1.Taint{Key: keyPrefix, Effect: effect})
	}
	limit, controlPlanes := maxExpressions, d.tolerates(v1alpha1.Taint{Key: controlPlane, Effect: corev1.TaintEffectNoSchedule})
	if !controlPlanes {
		limit--
	}
	expressions := []any{}
	if terms := requiredTerms(pod); len(terms) > 0 {
		single := len(terms) == 1 && len(terms[0].MatchFields) == 0
		exact = exact && single
		for _, r := range terms[0].MatchExpressions {
			if !single || !expressible(&r) || len(expressions) == limit {
				exact = false
				continue
			}
			expression := map[string]any{"key": r.Key, "operator": string(r.Operator)}
			if len(r.Values) > 0 {
				expression["values"] = r.Values
			}
			expressions = append(expressions, expression)
		}
	}
	if !controlPlanes {
		expressions = append(expressions, map[string]any{"key": controlPlane, "operator": string(metav1.LabelSelectorOpDoesNotExist)})
	}
	selector = map[string]any{}
	if len(matchLabels) > 0 {
		selector["matchLabels"] = matchLabels
	}
	if len(expressions) > 0 {
		selector["matchExpressions"] = expressions
	}
	return selector, exact
}

// asSelector returns a node selector of a manifest as a labels.Selector.
func asSelector(selector map[string]any) labels.Selector {
	var ng v1alpha1.NodeGate
	if err := yaml.Unmarshal([]byte(manifest(map[string]any{"spec": map[string]any{"nodeSelector": selector}})), &ng); err != nil {
		panic(err) // it was made of the fields of a selector
	}
	return nodesOf(&ng)
}

// nodesOf returns the selector of a gate's nodes. If it is invalid, the result matches no node. It has
// no requirements, so no gate and no DaemonSet counts as being on other nodes.
func nodesOf(ng *v1alpha1.NodeGate) labels.Selector {
	selector, err := ng.Spec.NodeSelector.AsSelector()
	if err != nil {
		return labels.Nothing() // the gate is not accepted
	}
	return selector
}

// expressibleLabels returns the labels of a node selector that a gate's selector can require. all
// is false if some are missing.
func expressibleLabels(nodeSelector map[string]string) (matchLabels map[string]any, all bool) {
	matchLabels = map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(nodeSelector)) {
		if len(matchLabels) < maxLabels && isLabelKey(key) && isLabelValue(nodeSelector[key]) {
			matchLabels[key] = nodeSelector[key]
		}
	}
	return matchLabels, len(matchLabels) == len(nodeSelector)
}

// expressible reports whether a gate's selector can contain a requirement of a node affinity. An
// affinity can have any number of values, such as instance types.
func expressible(r *corev1.NodeSelectorRequirement) bool {
	return r.Operator != corev1.NodeSelectorOpGt && r.Operator != corev1.NodeSelectorOpLt &&
		isLabelKey(r.Key) && len(r.Values) <= maxValues && !slices.ContainsFunc(r.Values, func(v string) bool { return !isLabelValue(v) })
}

func isLabelKey(key string) bool { return len(validation.IsQualifiedName(key)) == 0 }

func isLabelValue(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }

func requiredTerms(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}
