// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// maxTolerations is the maximum number of entries of the parameter of the tolerations
// policy. The limits of requirements, values and bytes are those of the birth policy.
const maxTolerations = 512

// maxTolerationTaints is the maximum number of different taints of these entries. The policy
// compares each of them with up to 256 tolerations of a DaemonSet, within the cost limit of an
// expression even if all keys have the maximum length.
const maxTolerationTaints = 64

// The first two requirements of each entry of the parameter. They are not for labels.
const (
	requirementGate      = "gate"
	requirementNamespace = "namespace"
	ownRequirements      = 2
)

// A TolerationEntry specifies DaemonSets and a taint that they must tolerate, because the
// gate with that taint waits for them.
type TolerationEntry struct {
	// Gate is the name of the gate.
	Gate  string
	Taint v1alpha1.Taint
	// Namespaces are the namespaces of the DaemonSets, sorted.
	Namespaces []string
	// Name is the name of the only DaemonSet, or empty.
	Name string
	// Labels are the requirements for the DaemonSets' labels.
	Labels []corev1.NodeSelectorRequirement
}

// TolerationEntries returns the entries of a gate, regardless of whether it sets tolerate.
// There is one for each taint and each of its signals about DaemonSets. Taints that keep no
// pod off are omitted. It returns an error if a selector is invalid.
func TolerationEntries(ng *v1alpha1.NodeGate) ([]TolerationEntry, error) {
	if ng.Spec.Follows() {
		return nil, nil // it does not wait for DaemonSets
	}
	var groups []TolerationEntry
	var errs []error
	for _, s := range v1alpha1.Sources(ng.Spec.OpenWhen) {
		if s.DaemonSet != nil {
			groups = append(groups, TolerationEntry{Gate: ng.Name, Namespaces: []string{s.DaemonSet.Namespace}, Name: s.DaemonSet.Name})
		}
		if s.DaemonSets != nil {
			wanted, err := requirements(*s.DaemonSets.Selector.AsMeta())
			errs = append(errs, err)
			groups = append(groups, TolerationEntry{Gate: ng.Name, Namespaces: sets.List(sets.New(s.DaemonSets.Namespaces...)), Labels: wanted})
		}
	}
	var all []TolerationEntry
	for _, taint := range ng.Spec.Taints() {
		for _, e := range groups {
			if e.Taint = taint; taint.Effect != corev1.TaintEffectPreferNoSchedule {
				all = append(all, e)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("adding tolerations for gate %q: %w", ng.Name, err)
	}
	return all, nil
}

// Writable returns an error if the API server would reject the entry in the parameter. The
// CRD's rules admit no such NodeGate.
func (e *TolerationEntry) Writable() error {
	var errs []error
	if msgs := validation.IsDNS1123Label(e.Gate); msgs != nil {
		errs = append(errs, fmt.Errorf("name: %s", strings.Join(msgs, "; ")))
	}
	if _, err := gate.ParseTaintID(gate.IDOf(e.Taint).String()); err != nil {
		errs = append(errs, fmt.Errorf("taint %w", err))
	}
	if msgs := validation.IsDNS1123Subdomain(e.Name); e.Name != "" && msgs != nil {
		errs = append(errs, fmt.Errorf("DaemonSet %q: %s", e.Name, strings.Join(msgs, "; ")))
	}
	for _, namespace := range e.Namespaces {
		if msgs := validation.IsDNS1123Label(namespace); msgs != nil {
			errs = append(errs, fmt.Errorf("namespace %q: %s", namespace, strings.Join(msgs, "; ")))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("adding tolerations for gate %q: %w", e.Gate, err)
	}
	return nil
}

// Selects reports whether the entry selects a DaemonSet.
func (e *TolerationEntry) Selects(namespace, name string, set labels.Set) bool {
	return slices.Contains(e.Namespaces, namespace) && (e.Name == "" || e.Name == name) && selectorOf(e.Labels).Matches(set)
}

// Tolerated reports whether tolerations tolerate the entry's taint.
func (e *TolerationEntry) Tolerated(tolerations []corev1.Toleration) bool {
	return gate.Tolerates(tolerations, e.Taint.Core())
}

// Toleration returns the toleration that the policy adds.
func (e *TolerationEntry) Toleration() corev1.Toleration {
	return corev1.Toleration{Key: e.Taint.Key, Operator: corev1.TolerationOpExists, Effect: e.Taint.Effect}
}

// Tolerate returns the tolerations of a pod template with those that the entries add, which
// are those that the policy adds to a DaemonSet that all of these entries select.
func Tolerate(tolerations []corev1.Toleration, entries []TolerationEntry) (all, added []corev1.Toleration) {
	for i := range entries {
		if e := &entries[i]; !e.Tolerated(tolerations) && !e.Tolerated(added) {
			added = append(added, e.Toleration())
		}
	}
	slices.SortFunc(added, func(a, b corev1.Toleration) int {
		return cmp.Compare(a.Key+":"+string(a.Effect), b.Key+":"+string(b.Effect))
	})
	return slices.Concat(tolerations, added), added
}

// FitTolerations returns the entries of gates that fit into the parameter, considered in
// order, and for each gate with an entry that does not fit an error, by name.
func FitTolerations(entries []TolerationEntry) (fitting []TolerationEntry, tooMany map[string]error) {
	tooMany = make(map[string]error)
	left := capacity{maxTolerations, maxRequirements, maxValues, maxBytes}
	taints := sets.New[gate.TaintID]()
	for _, e := range entries {
		id := gate.IDOf(e.Taint)
		if !taints.Has(id) && taints.Len() == maxTolerationTaints {
			tooMany[e.Gate] = fmt.Errorf("the API server adds tolerations of at most %d different taints for gates, and older gates have that many: "+
				"let gates share taints, or remove tolerate from gates, and run 'kubectl gate tolerate'", maxTolerationTaints)
			continue
		}
		size := Entry{Name: e.Gate, Taint: e.Taint, Nodes: e.requirements()}
		requirements, values, bytes := size.size()
		if !left.take(requirements, values, bytes+len(e.Name)) {
			tooMany[e.Gate] = fmt.Errorf("the API server adds at most %d tolerations for gates, whose selectors of DaemonSets have at most %d requirements, "+
				"%d values and %d bytes in total, and older gates use that much: remove tolerate from gates, and run 'kubectl gate tolerate'",
				maxTolerations, maxRequirements, maxValues, maxBytes)
			continue
		}
		fitting = append(fitting, e)
		taints.Insert(id)
	}
	return fitting, tooMany
}

func (e *TolerationEntry) requirements() []corev1.NodeSelectorRequirement {
	return append([]corev1.NodeSelectorRequirement{
		{Key: requirementGate, Operator: corev1.NodeSelectorOpIn, Values: []string{e.Gate}},
		{Key: requirementNamespace, Operator: corev1.NodeSelectorOpIn, Values: e.Namespaces},
	}, e.Labels...)
}

// TolerationsTemplate returns the object that the tolerations policy reads. It contains
// the entries, all of which must fit (see FitTolerations).
//
// The object is a PodTemplate. The i-th of its tolerations is the entry's taint, and the
// i-th of its nodeSelectorTerms selects the entry's DaemonSets: the first two requirements
// are the gate's name and the namespaces, the others are for labels, and a field is the
// name of the only DaemonSet. Entries are sorted by taint, so that the policy adds each
// toleration once.
func TolerationsTemplate(namespace string, entries []TolerationEntry) *corev1.PodTemplate {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b TolerationEntry) int {
		return cmp.Or(cmp.Compare(gate.IDOf(a.Taint).String(), gate.IDOf(b.Taint).String()), cmp.Compare(a.Gate, b.Gate),
			slices.Compare(a.Namespaces, b.Namespaces), cmp.Compare(a.Name, b.Name))
	})
	p := newParameter(namespace, v1alpha1.TolerationsParameter, v1alpha1.TolerationsLabel)
	for _, e := range entries {
		term := corev1.NodeSelectorTerm{MatchExpressions: e.requirements()}
		if e.Name != "" {
			term.MatchFields = []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{e.Name}}}
		}
		addEntry(p, e.Taint, term)
	}
	return p
}

// EntriesOfTolerations returns the entries of a parameter, or nil if it is damaged. Entries that
// no gate can have are omitted.
func EntriesOfTolerations(p *corev1.PodTemplate) []TolerationEntry {
	terms := termsOf(p)
	if len(terms) != len(p.Template.Spec.Tolerations) {
		return nil
	}
	var all []TolerationEntry
	for i, t := range p.Template.Spec.Tolerations {
		wanted := terms[i].MatchExpressions
		if len(wanted) < ownRequirements || wanted[0].Key != requirementGate || len(wanted[0].Values) != 1 || wanted[1].Key != requirementNamespace {
			return nil
		}
		e := TolerationEntry{
			Gate: wanted[0].Values[0], Taint: v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect},
			Namespaces: wanted[1].Values, Labels: wanted[ownRequirements:],
		}
		if fields := terms[i].MatchFields; len(fields) == 1 && len(fields[0].Values) == 1 {
			e.Name = fields[0].Values[0]
		}
		if e.Writable() == nil {
			all = append(all, e)
		}
	}
	return all
}
