// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Limits of the parameter, for all gates together. At this size, the policy delays
// the creation of a Node by about 35 ms (BenchmarkBirth). The policy ignores a larger
// parameter.
const (
	maxGates        = 256
	maxRequirements = 2048
	maxValues       = 8192
	maxBytes        = 512 << 10
)

// noBackup is Velero's label to exclude an object from backups. If the parameter were
// restored into a cluster without nodegate, gates would close on new nodes and never
// open. nodegate itself creates the parameter again.
const noBackup = "velero.io/exclude-from-backup"

// An Entry is the part of the parameter about one gate: the nodes that it selects,
// and the taint with which they are created.
type Entry struct {
	Name  string
	Taint v1alpha1.Taint
	// Nodes are the requirements for a Node's labels. If it is empty, all Nodes are
	// selected.
	Nodes []corev1.NodeSelectorRequirement
}

// NewEntry returns the gate's entry. It returns an error if the policy could not
// evaluate the entry, or if the API server would reject the resulting Node.
func NewEntry(ng *v1alpha1.NodeGate) (Entry, error) {
	nodes, err := requirements(*ng.Spec.NodeSelector.AsMeta())
	if err == nil {
		err = gate.Writable(ng.Name, ng.Spec.Taint)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("closing gate %q on new nodes: %w", ng.Name, err)
	}
	return Entry{Name: ng.Name, Taint: ng.Spec.Taint, Nodes: nodes}, nil
}

// requirements converts a label selector to sorted requirements without duplicates.
func requirements(selector metav1.LabelSelector) ([]corev1.NodeSelectorRequirement, error) {
	// This validates operators, keys and values, and which operators have values.
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		return nil, fmt.Errorf("nodeSelector: %w", err)
	}
	var all []corev1.NodeSelectorRequirement
	for key, value := range selector.MatchLabels {
		all = append(all, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	for _, r := range selector.MatchExpressions { // the operators have the same names
		one := corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOperator(r.Operator)}
		if len(r.Values) > 0 {
			one.Values = sets.List(sets.New(r.Values...))
		}
		all = append(all, one)
	}
	compare := func(a, b corev1.NodeSelectorRequirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b corev1.NodeSelectorRequirement) bool { return compare(a, b) == 0 }), nil
}

// Fit returns the entries that fit into the parameter, considered in order, and for
// each of the others an error, by name.
func Fit(entries []Entry) (fitting []Entry, tooMany map[string]error) {
	tooMany = make(map[string]error)
	left := capacity{maxGates, maxRequirements, maxValues, maxBytes}
	for _, e := range entries {
		if !left.take(e.size()) {
			tooMany[e.Name] = fmt.Errorf("the API server closes at most %d gates on new nodes, whose node selectors have at most %d requirements, "+
				"%d values and %d bytes in total, and older gates use that much: delete gates, or label nodes and select only that label",
				maxGates, maxRequirements, maxValues, maxBytes)
			continue
		}
		fitting = append(fitting, e)
	}
	return fitting, tooMany
}

// capacity is what can still be added to a parameter.
type capacity struct{ entries, requirements, values, bytes int }

// take reduces the capacity by an entry of this size if the entry fits, and reports whether it does.
func (c *capacity) take(requirements, values, bytes int) bool {
	if c.entries < 1 || c.requirements < requirements || c.values < values || c.bytes < bytes {
		return false
	}
	*c = capacity{c.entries - 1, c.requirements - requirements, c.values - values, c.bytes - bytes}
	return true
}

// size returns what the entry adds to the amounts that are limited.
func (e *Entry) size() (requirements, values, bytes int) {
	bytes = len(e.Name) + len(e.Taint.Key) + len(e.Taint.Value) + len(e.Taint.Effect)
	for _, r := range e.Nodes {
		values += len(r.Values)
		bytes += len(r.Key) + len(r.Operator)
		for _, v := range r.Values {
			bytes += len(v)
		}
	}
	return len(e.Nodes), values, bytes
}

// Parameter returns the object that the birth policy reads. It contains the entries, all
// of which must fit (see Fit). The source is the gates' source, as in records.
//
// The object is a PodTemplate. The i-th of its schedulingGates is the gate's name, the
// i-th of its tolerations the gate's taint, and the i-th of its nodeSelectorTerms
// selects the gate's nodes; an empty term selects all nodes. Entries are sorted by
// taint, so that the policy detects taints that several gates share.
func Parameter(namespace, source string, entries []Entry) *corev1.PodTemplate {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b Entry) int {
		return cmp.Or(cmp.Compare(gate.IDOf(a.Taint).String(), gate.IDOf(b.Taint).String()), cmp.Compare(a.Name, b.Name))
	})
	p := newParameter(namespace, v1alpha1.BirthParameter, v1alpha1.ParameterLabel)
	p.Annotations = map[string]string{v1alpha1.ParameterSource: source}
	for _, e := range entries {
		p.Template.Spec.SchedulingGates = append(p.Template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: e.Name})
		addEntry(p, e.Taint, corev1.NodeSelectorTerm{MatchExpressions: e.Nodes})
	}
	return p
}

// newParameter returns a parameter without entries. The label marks parameters of its policy.
func newParameter(namespace, name, label string) *corev1.PodTemplate {
	return &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: namespace,
			Labels:    map[string]string{label: "true", "app.kubernetes.io/managed-by": "nodegate", noBackup: "true"},
		},
		Template: placeholder(),
	}
}

// addEntry adds a taint and a term to a parameter.
func addEntry(p *corev1.PodTemplate, taint v1alpha1.Taint, term corev1.NodeSelectorTerm) {
	spec := &p.Template.Spec
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
		Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect,
	})
	if spec.Affinity == nil { // not without entries: nodeSelectorTerms may not be empty
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
	}
	selector := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
}

// termsOf returns the nodeSelectorTerms of a parameter.
func termsOf(p *corev1.PodTemplate) []corev1.NodeSelectorTerm {
	if a := p.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// Entries returns the entries of a parameter, or nil if it is damaged. Entries that no gate can
// have are omitted: with one of them, the policy ignores the parameter.
func Entries(p *corev1.PodTemplate) map[string]Entry {
	spec, terms := &p.Template.Spec, termsOf(p)
	if len(terms) != len(spec.SchedulingGates) || len(terms) != len(spec.Tolerations) {
		return nil
	}
	entries := make(map[string]Entry, len(terms))
	for i, t := range spec.Tolerations {
		e := Entry{
			Name: spec.SchedulingGates[i].Name, Nodes: terms[i].MatchExpressions,
			Taint: v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect},
		}
		if gate.Writable(e.Name, e.Taint) == nil {
			entries[e.Name] = e
		}
	}
	return entries
}

// Corrected returns the existing parameter of either policy with the wanted template if the policy
// would read something else in it, and with the wanted labels and annotations, and reports whether
// that changed it. It keeps the resource version, so that a stale correction fails. It keeps labels and
// annotations of other writers, which might otherwise add them again after each correction.
func Corrected(existing, want *corev1.PodTemplate) (*corev1.PodTemplate, bool) {
	out := existing.DeepCopy()
	changed := put(&out.Labels, want.Labels)
	changed = put(&out.Annotations, want.Annotations) || changed
	have, wanted := &out.Template.Spec, &want.Template.Spec
	same := apiequality.Semantic
	if !same.DeepEqual(have.SchedulingGates, wanted.SchedulingGates) || !same.DeepEqual(have.Tolerations, wanted.Tolerations) ||
		!same.DeepEqual(have.Affinity, wanted.Affinity) {
		out.Template, changed = *want.Template.DeepCopy(), true
	}
	return out, changed
}

// Equal reports whether two entries are equal.
func (e Entry) Equal(other Entry) bool {
	return e.Name == other.Name && e.Taint == other.Taint && slices.EqualFunc(e.Nodes, other.Nodes, func(a, b corev1.NodeSelectorRequirement) bool {
		return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
	})
}

// selectorOf returns a selector with these requirements for labels. If one is not valid, it selects
// nothing.
func selectorOf(requirements []corev1.NodeSelectorRequirement) labels.Selector {
	var all []metav1.LabelSelectorRequirement
	for _, r := range requirements { // the operators have the same names
		all = append(all, metav1.LabelSelectorRequirement{Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values})
	}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: all})
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// put adds entries to a map and reports whether that changed it.
func put(to *map[string]string, entries map[string]string) (changed bool) {
	for key, value := range entries {
		if got, ok := (*to)[key]; ok && got == value {
			continue
		}
		if *to == nil {
			*to = make(map[string]string)
		}
		(*to)[key], changed = value, true
	}
	return changed
}

// placeholder returns a pod template that the API server accepts and that is never
// run. It meets the strictest Pod Security Standard, so that writing the parameter
// causes no warning.
func placeholder() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  "none",
				Image: "none",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
