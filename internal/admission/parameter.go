// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// What the birth policy reads of a parameter at most. It is more than a valid
// NodeGate can ask for, and keeps the policy fast whatever is in a parameter.
const (
	maxParameterBytes = 49152
	maxSelectorLines  = 64
	maxSelectorValues = 1024
)

// noBackup keeps parameters out of backups (Velero's label). In a cluster into which
// one is restored without nodegate, they would close nodes that nobody opens; with
// nodegate, they are made anew.
const noBackup = "velero.io/exclude-from-backup"

// Parameter returns the object that makes the birth policy close the gate, which
// was declared at the source, on the nodes that it selects. The error says why the policy could not read it:
// the policy itself would pass over such a parameter in silence.
func Parameter(namespace, source string, gate *v1alpha1.NodeGate) (*corev1.PodTemplate, error) {
	selector, err := SelectorLines(*gate.Spec.NodeSelector.AsMeta())
	if err != nil {
		return nil, fmt.Errorf("rendering the birth parameter of gate %q: nodeSelector: %w", gate.Name, err)
	}
	if err := Writable(gate); err != nil {
		return nil, fmt.Errorf("rendering the birth parameter of gate %q: %w", gate.Name, err)
	}
	return &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Name:      gate.Name,
			Namespace: namespace,
			Labels: map[string]string{
				v1alpha1.ParameterLabel:        "true",
				"app.kubernetes.io/managed-by": "nodegate",
				noBackup:                       "true",
			},
			Annotations: map[string]string{
				v1alpha1.ParameterKey:      gate.Spec.Taint.Key,
				v1alpha1.ParameterValue:    gate.Spec.Taint.Value,
				v1alpha1.ParameterEffect:   string(gate.Spec.Taint.Effect),
				v1alpha1.ParameterSelector: selector,
				v1alpha1.ParameterSource:   source,
			},
		},
		Template: placeholder(),
	}, nil
}

// Writable says why a gate's record or taint may not be written to a Node that is
// being created: the API server would refuse the Node. The birth policy checks
// the same. No NodeGate is like that, if its own rules are in force.
func Writable(gate *v1alpha1.NodeGate) error {
	name, taint := gate.Name, gate.Spec.Taint
	var errs []error
	if msgs := validation.IsDNS1123Label(name); msgs != nil {
		errs = append(errs, fmt.Errorf("name: %s", strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsQualifiedName(taint.Key); msgs != nil {
		errs = append(errs, fmt.Errorf("taint key %q: %s", taint.Key, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsValidLabelValue(taint.Value); msgs != nil {
		errs = append(errs, fmt.Errorf("taint value %q: %s", taint.Value, strings.Join(msgs, "; ")))
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !slices.Contains(effects, taint.Effect) {
		errs = append(errs, fmt.Errorf("taint effect %q is none of %v", taint.Effect, effects))
	}
	return errors.Join(errs...)
}

// placeholder is a pod template that the API accepts and that nobody is meant
// to run. It meets the strictest Pod Security Standard, so that writing a
// parameter warns nobody.
func placeholder() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  "none",
				Image: "none",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// SelectorLines writes a label selector in the form that the birth policy
// evaluates: one requirement a line, sorted, none for a selector of everything.
//
//	In key v1,v2
//	NotIn key v1,v2
//	Exists key
//	DoesNotExist key
func SelectorLines(selector metav1.LabelSelector) (string, error) {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		lines = append(lines, "In "+key+" "+selector.MatchLabels[key])
	}
	for _, r := range selector.MatchExpressions {
		line := string(r.Operator) + " " + r.Key
		if len(r.Values) > 0 {
			line += " " + strings.Join(sets.List(sets.New(r.Values...)), ",")
		}
		lines = append(lines, line)
	}
	// This checks operators, keys and values, and that values are where they
	// must be and nowhere else. None of them can have a blank or a comma in it.
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		return "", fmt.Errorf("reading the label selector: %w", err)
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	text := strings.Join(lines, "\n")
	values := strings.Count(text, ",") + 1
	if len(text) > maxParameterBytes || len(lines) > maxSelectorLines || values > maxSelectorValues {
		return "", fmt.Errorf("the label selector has %d requirements, %d values and %d bytes, and the birth policy reads "+
			"at most %d, %d and %d; label the nodes and select that one label instead",
			len(lines), values, len(text), maxSelectorLines, maxSelectorValues, maxParameterBytes)
	}
	return text, nil
}
