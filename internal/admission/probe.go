// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// staleHint is for a defect of Kubernetes (kubernetes/kubernetes#130887). The anchor in birth.yaml
// prevents it, unless that is deleted too.
const staleHint = "if " + BirthAnchor + " was deleted, as by 'kubectl gate uninstall', restart the API servers"

// probePrefix is the prefix of the names of probes, which exist only in dry runs.
const probePrefix = "nodegate-probe-"

// Probe returns a Node that the gate selects, to be created in a dry run: the API
// server's answer shows whether the gate is closed at birth (see Proved). It returns
// false if no node can have labels that the gate selects.
//
// If possible, the entry before does not select the Node. If that is the gate's previous
// version, the answer shows which version the API server uses. It may be the zero Entry.
func Probe(g *v1alpha1.NodeGate, before Entry) (*corev1.Node, bool) {
	selector, err := g.Spec.NodeSelector.AsSelector()
	if err != nil {
		return nil, false
	}
	nodeLabels := selectedLabels(selector, selectorOf(before.Nodes))
	if !selector.Matches(nodeLabels) || gate.OptOut(nodeLabels, true) != "" {
		return nil, false
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   probePrefix + g.Name,
		Labels: nodeLabels,
	}}, true
}

// selectedLabels returns labels that the selector matches, if such labels exist, and that
// before does not match, if possible.
func selectedLabels(selector, before labels.Selector) labels.Set {
	wanted, avoided := byKey(selector), byKey(before)
	out := labels.Set{}
	for _, key := range slices.Concat(slices.Collect(maps.Keys(wanted)), slices.Collect(maps.Keys(avoided))) {
		maps.Copy(out, selectedLabel(key, wanted[key], avoided[key]))
	}
	return out
}

func byKey(selector labels.Selector) map[string]labels.Requirements {
	requirements, _ := selector.Requirements()
	all := map[string]labels.Requirements{}
	for _, r := range requirements {
		all[r.Key()] = append(all[r.Key()], r)
	}
	return all
}

// selectedLabel returns a set with at most this label that meets all requirements and, if
// possible, does not meet all requirements to avoid. It returns nil if no set meets them.
func selectedLabel(key string, wanted, avoided labels.Requirements) labels.Set {
	// All values that are named, and one more value than can be excluded.
	var values []string
	for _, r := range slices.Concat(wanted, avoided) {
		values = append(values, r.Values().List()...)
	}
	for i := range len(values) + 1 {
		values = append(values, "probe-"+strconv.Itoa(i))
	}
	var first labels.Set
	for i := range len(values) + 1 {
		set := labels.Set{} // without the label
		if i > 0 {
			set[key] = values[i-1]
		}
		switch {
		case gate.OptOut(set, true) != "" || !meets(set, wanted):
		case len(avoided) == 0 || !meets(set, avoided):
			return set
		case first == nil:
			first = set
		}
	}
	return first
}

func meets(set labels.Set, requirements labels.Requirements) bool {
	return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(set) })
}

// hint returns what to check if a gate is not closed at birth.
func (b Birth) hint() string {
	if b == ByWebhook {
		return fmt.Sprintf("check that MutatingWebhookConfiguration %s exists, that Service %s has ready endpoints, "+
			"and that every API server reaches them, trusts their certificate, and presents the client certificate that "+
			"--webhook-client-ca-file requires, if it is set (apiserver_admission_webhook_fail_open_count counts failed calls; "+
			"'nodegate webhook-certificate' creates a certificate and makes the API server trust it)",
			BirthWebhook, WebhookService)
	}
	return fmt.Sprintf("check that MutatingAdmissionPolicy and MutatingAdmissionPolicyBinding %s exist "+
		"(they require Kubernetes 1.36; on older versions, use --birth=webhook), "+
		"and that PodTemplate %s in the binding's namespace contains the gate; "+staleHint,
		BirthPolicy, v1alpha1.BirthParameter)
}

// Proved returns nil if created, the API server's answer to the creation of Probe in a
// dry run, has the gate's taint and its record. Otherwise, the error describes what is
// missing and what to check.
func Proved(by Birth, g *v1alpha1.NodeGate, created *corev1.Node) error {
	taint := gate.TaintText(g.Spec.Taint)
	raw, recorded := created.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name]
	if !recorded {
		return fmt.Errorf("new nodes are not closed: the API server created a probe node without a record of gate %q; %s",
			g.Name, by.hint())
	}
	record, err := gate.ParseRecord(raw)
	if err != nil {
		return fmt.Errorf("new nodes are not closed properly: the API server created a probe node with an invalid record of gate %q: %w; "+
			"MutatingAdmissionPolicy %s belongs to another version of nodegate: apply the manifests of this version again", g.Name, err, BirthPolicy)
	}
	if record.State != v1alpha1.StateClosed || record.Reason != v1alpha1.ReasonBirth || record.Taint != taint {
		return fmt.Errorf("new nodes are closed by an older version of gate %q: the API server created a probe node with the record %s "+
			"instead of one for taint %s; PodTemplate %s is not up to date, or the API server, or a replica that serves the webhook, has not received it yet; "+staleHint,
			g.Name, raw, taint, v1alpha1.BirthParameter)
	}
	if !slices.ContainsFunc(created.Spec.Taints, func(t corev1.Taint) bool { return v1alpha1.TaintOf(t) == g.Spec.Taint }) {
		return fmt.Errorf("new nodes are not closed: the API server created a probe node with the record of gate %q but without the taint %s; "+
			"another admission policy or webhook for nodes removes it", g.Name, taint)
	}
	return nil
}
