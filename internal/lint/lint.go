// SPDX-License-Identifier: Apache-2.0

// Package lint judges gates together with what they depend on in a cluster:
// daemons, operators, autoscalers, labels and other writers of their taints.
// Objects in, findings out: it reads nothing by itself.
package lint

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// World is what is known of a cluster.
type World struct {
	// Gates are all gates, as they are or would be.
	Gates []v1alpha1.NodeGate
	// Judged names those about which findings are wanted; nil for all.
	Judged map[string]bool
	// Policy is what gates are allowed.
	Policy gate.KeyPolicy
	// Nodes are all nodes.
	Nodes []*gate.Node
	// Samples are a few whole Nodes, to see who writes what.
	Samples []corev1.Node
	// DaemonSets are those that gates wait for, and what else is in their
	// namespaces.
	DaemonSets  *gate.DaemonSets
	Deployments []appsv1.Deployment
	// NodePools are Karpenter's.
	NodePools []unstructured.Unstructured
	// CiliumConfig is the data of the ConfigMap kube-system/cilium-config.
	CiliumConfig map[string]string
	// Unread says, by kind, why it could not be read. What is here is not to be
	// taken for empty.
	Unread map[Kind]error
}

// Kind is something to be read.
type Kind string

// All that is read, besides gates.
const (
	TaintKeys      Kind = "allowed taint keys"
	ReadinessRules Kind = "nodereadinessrules"
	Nodes          Kind = "nodes"
	DaemonSets     Kind = "daemonsets"
	Deployments    Kind = "deployments"
	NodePools      Kind = "nodepools"
	CiliumConfig   Kind = "configmap kube-system/cilium-config"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Error says that the gate does not work, or keeps something else from working.
	Error Severity = "Error"
	// Warning says that it will not do what most people expect of it.
	Warning Severity = "Warning"
	// Note is worth knowing, and often meant to be so.
	Note Severity = "Note"
)

// Finding is something that is wrong about one gate.
type Finding struct {
	// ID is what the finding is called in docs/lint.md.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Gate     string   `json:"gate"`
	// Object is what else it is about, as kind/name or kind/namespace/name.
	Object string `json:"object,omitempty"`
	// What says what is found, Why what comes of it, and Do what to do about it.
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do"`
}

// Gap is something that could not be read, and the IDs of what it may hide.
type Gap struct {
	What  string   `json:"what"`
	Error string   `json:"error"`
	Hides []string `json:"hides"`
}

// Report is what lint has to say. Fields are added, and neither renamed nor given
// another meaning.
type Report struct {
	// Gates are the names of those that were judged.
	Gates []string `json:"gates"`
	// Findings are the worst first, then by gate.
	Findings []Finding `json:"findings"`
	// Gaps are what could not be judged. A report with gaps says of nothing that
	// it is well.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Bad tells whether there is anything worse than a note.
func (r *Report) Bad() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// subject is a gate that is judged.
type subject struct {
	*v1alpha1.NodeGate
	gate.Gate
	refusal gate.Acceptance
	// nodes are those that it selects.
	nodes []*gate.Node
}

// name is the gate's; both of what it is made of have one.
func (s *subject) name() string { return s.NodeGate.Name }

// waits tells whether the gate keeps nodes closed until its signals hold.
func (s *subject) waits() bool {
	return !s.CloseWhen && s.Mode != v1alpha1.ModePaused
}

// hit is what one rule found.
type hit struct{ object, what string }

// Of judges the gates of a world.
func Of(w *World) *Report {
	r := &Report{Gates: []string{}, Findings: []Finding{}}
	judge := w.judge()
	for i := range judge.subjects {
		s := &judge.subjects[i]
		if w.Judged != nil && !w.Judged[s.name()] {
			continue
		}
		r.Gates = append(r.Gates, s.name())
		for _, rule := range Rules {
			for _, h := range rule.check(judge, s) {
				r.Findings = append(r.Findings, Finding{
					ID: rule.ID, Severity: rule.Severity, Gate: s.name(), Object: h.object, What: h.what, Why: rule.Why, Do: rule.Do,
				})
			}
		}
	}
	severities := []Severity{Error, Warning, Note}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)), cmp.Compare(a.Gate, b.Gate))
	})
	for _, kind := range slices.Sorted(maps.Keys(w.Unread)) {
		r.Gaps = append(r.Gaps, Gap{What: string(kind), Error: w.Unread[kind].Error(), Hides: hiddenBy(kind)})
	}
	return r
}

// hiddenBy returns the rules that need a kind.
func hiddenBy(kind Kind) []string {
	var ids []string
	for _, rule := range Rules {
		if slices.Contains(rule.Needs, kind) {
			ids = append(ids, rule.ID)
		}
	}
	return ids
}

// judge is a world whose gates have been compiled.
type judge struct {
	*World
	gates    []gate.Gate
	subjects []subject
}

func (w *World) judge() *judge {
	j := &judge{World: w}
	invalid := make(map[string]error)
	for i := range w.Gates {
		g, err := signal.Compile(&w.Gates[i], v1alpha1.SourceCRD)
		if err != nil {
			invalid[g.Name] = err
		}
		j.gates = append(j.gates, g)
	}
	accepted := gate.Accept(j.gates, w.Policy)
	for i := range j.gates {
		g := &j.gates[i]
		a := accepted[g.Name]
		if err := invalid[g.Name]; err != nil {
			a = gate.Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
		}
		g.Accepted = a.Accepted
		s := subject{NodeGate: &w.Gates[i], Gate: *g, refusal: a}
		for _, n := range w.Nodes {
			if g.Selector.Matches(n.Labels) && n.Labels[v1alpha1.OptOutLabel] != v1alpha1.OptOutValue {
				s.nodes = append(s.nodes, n)
			}
		}
		j.subjects = append(j.subjects, s)
	}
	slices.SortFunc(j.subjects, func(a, b subject) int { return cmp.Compare(a.name(), b.name()) })
	return j
}
