// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// staleHint is for a defect of Kubernetes (kubernetes/kubernetes#130887) that
// the anchor binding in birth.yaml keeps away, unless everything is deleted.
const staleHint = "if the policy or its bindings were deleted and created again, restart the API servers"

// probePrefix begins the names of probe nodes. They exist in dry runs only.
const probePrefix = "nodegate-probe-"

// Probe returns a Node that the gate selects, to be created in a dry run: what
// the API server answers shows whether the gate is closed at birth (see
// Proved). It is false if no node can have labels that the gate selects.
func Probe(g *v1alpha1.NodeGate) (*corev1.Node, bool) {
	selector, err := g.Spec.NodeSelector.AsSelector()
	if err != nil {
		return nil, false
	}
	nodeLabels := selectedLabels(selector)
	if !selector.Matches(nodeLabels) || gate.OptOut(nodeLabels, true) != "" {
		return nil, false
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   probePrefix + g.Name,
		Labels: nodeLabels,
	}}, true
}

// selectedLabels returns labels that the selector matches, if any does.
func selectedLabels(selector labels.Selector) labels.Set {
	requirements, _ := selector.Requirements()
	byKey := map[string]labels.Requirements{}
	for _, r := range requirements {
		byKey[r.Key()] = append(byKey[r.Key()], r)
	}
	out := labels.Set{}
	for key, group := range byKey {
		if value, ok := selectedValue(key, group); ok {
			out[key] = value
		}
	}
	return out
}

// selectedValue returns a value of a label that meets all requirements; it is
// false if they are met, or can only be met, by leaving the label out.
func selectedValue(key string, requirements labels.Requirements) (string, bool) {
	met := func(set labels.Set) bool {
		return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(set) })
	}
	if met(labels.Set{}) {
		return "", false
	}
	// Whatever is named, and one more value than can be excluded.
	var candidates []string
	for _, r := range requirements {
		candidates = append(candidates, r.Values().List()...)
	}
	for i := range len(candidates) + 1 {
		candidates = append(candidates, "probe-"+strconv.Itoa(i))
	}
	i := slices.IndexFunc(candidates, func(value string) bool { return met(labels.Set{key: value}) })
	if i < 0 {
		return "", false
	}
	return candidates[i], true
}

// hint says what to look at where a gate is not closed at birth.
func (b Birth) hint(g *v1alpha1.NodeGate) string {
	if b == ByWebhook {
		return fmt.Sprintf("check that MutatingWebhookConfiguration %s exists, that Service %s has ready endpoints, "+
			"and that the API server reaches them and trusts their certificate (apiserver_admission_webhook_fail_open_count counts "+
			"when it does not; 'nodegate webhook-certificate' makes a certificate, and has it trusted)",
			BirthWebhook, WebhookService)
	}
	return fmt.Sprintf("check that MutatingAdmissionPolicy and MutatingAdmissionPolicyBinding %s exist "+
		"(they take Kubernetes 1.36; before that, close births by webhook), "+
		"and that PodTemplate %s in the binding's namespace names the gate; "+staleHint,
		BirthPolicy, v1alpha1.BirthParameter)
}

// Proved tells whether a Node that the API server just created from Probe, in
// a dry run, came back closed: with the gate's taint and its record. The error
// says what is missing and where to look.
func Proved(by Birth, g *v1alpha1.NodeGate, created *corev1.Node) error {
	taint := gate.TaintText(g.Spec.Taint)
	raw, recorded := created.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name]
	if !recorded {
		return fmt.Errorf("new nodes are not closed: the API server created a probe node without a record of gate %q; %s",
			g.Name, by.hint(g))
	}
	record, err := gate.ParseRecord(raw)
	if err != nil {
		return fmt.Errorf("new nodes are not closed properly: the API server created a probe node with a record of gate %q that is none: %w; "+
			"MutatingAdmissionPolicy %s is not the one of this version of nodegate: apply it again", g.Name, err, BirthPolicy)
	}
	if record.State != v1alpha1.StateClosed || record.Reason != v1alpha1.ReasonBirth || record.Taint != taint {
		return fmt.Errorf("new nodes are closed by an older form of gate %q: the API server created a probe node with the record %s "+
			"instead of one for taint %s; PodTemplate %s is not up to date, or the API server, or a replica that serves the webhook, has not heard of it yet; "+staleHint,
			g.Name, raw, taint, v1alpha1.BirthParameter)
	}
	if !slices.ContainsFunc(created.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == g.Spec.Taint.Key && t.Value == g.Spec.Taint.Value && t.Effect == g.Spec.Taint.Effect
	}) {
		return fmt.Errorf("new nodes are not closed: the API server created a probe node with the record of gate %q but without the taint %s; "+
			"another admission policy or webhook for nodes takes it off", g.Name, taint)
	}
	return nil
}
