// SPDX-License-Identifier: Apache-2.0

// Package lint checks gates together with what they depend on in a cluster: daemons,
// operators, autoscalers, labels and other writers of their taints. It gets objects,
// returns findings, and does no I/O.
package lint

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/descheduler"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/signal"
	"github.com/nodegate/nodegate/internal/writers"
)

// World is the known state of a cluster.
type World struct {
	// Gates are all gates after the change to check.
	Gates []v1alpha1.NodeGate
	// Checked contains the names of the gates to check. Nil for all gates.
	Checked map[string]bool
	// Policy contains the taint keys that gates may use.
	Policy gate.KeyPolicy
	// Nodes are all nodes.
	Nodes []*gate.Node
	// Samples are some complete Nodes, with the writers of their fields.
	Samples []corev1.Node
	// DaemonSets are those that gates wait for, and all others in the same namespaces.
	DaemonSets   *gate.DaemonSets
	Deployments  []appsv1.Deployment
	StatefulSets []appsv1.StatefulSet
	// NodePools are Karpenter NodePools.
	NodePools []unstructured.Unstructured
	// CiliumConfigs contains the data of each ConfigMap cilium-config, by namespace.
	CiliumConfigs map[string]map[string]string
	// DeschedulerPolicies are the policies of the deschedulers that Deployments and CronJobs
	// run.
	DeschedulerPolicies []descheduler.Policy
	// TolerationsPolicy reports whether the policy that adds tolerations to DaemonSets, and
	// its binding, exist.
	TolerationsPolicy bool
	// AgentMissing reports whether the node agent, which gates with bypassedPods Hold need,
	// is not installed.
	AgentMissing bool
	// UnconfinedAgent reports whether the node agent may write the status of Nodes, and the
	// policy that confines it is not enforced.
	UnconfinedAgent bool
	// ResourceFlavors are those of Kueue.
	ResourceFlavors []unstructured.Unstructured
	// Unread contains read errors by kind. What could not be read must not be treated as
	// empty.
	Unread map[Kind]error
}

// Kind is a kind of object to read.
type Kind string

// All kinds that are read in addition to gates.
const (
	TaintKeys      Kind = "allowed taint keys"
	ReadinessRules Kind = "nodereadinessrules"
	Nodes          Kind = "nodes"
	DaemonSets     Kind = "daemonsets"
	Deployments    Kind = "deployments"
	NodePools      Kind = "nodepools"
	CiliumConfig   Kind = "configmaps cilium-config"
	StatefulSets   Kind = "statefulsets"
	CronJobs       Kind = "cronjobs"
	// DeschedulerPolicies are in the ConfigMaps that deschedulers mount.
	DeschedulerPolicies Kind = "configmaps of the descheduler"
	ResourceFlavors     Kind = "resourceflavors"
	// TolerationsPolicy is the policy that adds tolerations to DaemonSets.
	TolerationsPolicy Kind = "mutatingadmissionpolicies"
	// AgentRole is the ClusterRole of the node agent.
	AgentRole Kind = "clusterroles"
	// AgentPolicy is the policy that confines the node agent, if its ClusterRole requires one.
	AgentPolicy Kind = "validatingadmissionpolicies"
)

// Severity is the severity of a finding.
type Severity string

const (
	// Error means that the gate does not work, or prevents something else from working.
	Error Severity = "Error"
	// Warning means that the gate will probably not behave as expected.
	Warning Severity = "Warning"
	// Note means that the finding may be intended.
	Note Severity = "Note"
)

// Finding is a problem of a gate.
type Finding struct {
	// ID is the name of the rule in docs/lint.md.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Gate     string   `json:"gate"`
	// Object is another object that is involved, as kind/name or kind/namespace/name.
	Object string `json:"object,omitempty"`
	// What describes the problem, Why its consequence, and Do how to fix it.
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do"`
}

// Gap is something that could not be read, and the IDs of the findings that may be
// missing because of it.
type Gap struct {
	What  string   `json:"what"`
	Error string   `json:"error"`
	Hides []string `json:"hides"`
}

// Report is the result of lint. Fields may be added, but are neither renamed nor changed
// in meaning.
type Report struct {
	// Gates are the names of the checked gates.
	Gates []string `json:"gates"`
	// Findings are sorted by severity, most severe first, and then by gate.
	Findings []Finding `json:"findings"`
	// Gaps are the checks that could not be made. If there are any, a gate without
	// findings may still have problems.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Bad reports whether there are errors or warnings.
func (r *Report) Bad() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// subject is a gate to check.
type subject struct {
	*v1alpha1.NodeGate
	gate.Gate
	acceptance gate.Acceptance
	// nodes are the nodes that the gate selects.
	nodes []*gate.Node
}

// name returns the gate's name. Both embedded types have one.
func (s *subject) name() string { return s.NodeGate.Name }

// waits reports whether the gate keeps nodes closed until its signals hold.
func (s *subject) waits() bool {
	return !s.CloseWhen && s.Mode != v1alpha1.ModePaused
}

// hit is a problem that a rule found.
type hit struct{ object, what string }

// Of checks the gates of a world.
func Of(w *World) *Report {
	r := &Report{Gates: []string{}, Findings: []Finding{}}
	c := w.checker()
	for i := range c.subjects {
		s := &c.subjects[i]
		if w.Checked != nil && !w.Checked[s.name()] {
			continue
		}
		r.Gates = append(r.Gates, s.name())
		for _, rule := range Rules {
			for _, h := range rule.check(c, s) {
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

// hiddenBy returns the IDs of the rules that need a kind.
func hiddenBy(kind Kind) []string {
	var ids []string
	for _, rule := range Rules {
		if slices.Contains(rule.Needs, kind) {
			ids = append(ids, rule.ID)
		}
	}
	return ids
}

// checker is a world with compiled gates.
type checker struct {
	*World
	set      *gateset.Set
	subjects []subject
	// lasting contains the taints of nodes that are not temporary.
	lasting map[*gate.Node][]corev1.Taint
	// deadlocks contains the deadlocks of each gate with others, by name. They are determined once,
	// because this compares each pair of gates.
	deadlocks map[string][]signal.Deadlock
}

func (w *World) checker() *checker {
	j := &checker{World: w, set: w.compile(), lasting: make(map[*gate.Node][]corev1.Taint)}
	for _, n := range w.Nodes {
		facts := &gate.Facts{Node: *n, Transient: gate.Transient{GateKeys: j.set.Keys}}
		j.lasting[n] = facts.Lasting()
	}
	for i := range j.set.Gates {
		g := &j.set.Gates[i]
		s := subject{NodeGate: j.set.Declared[g.Name], Gate: *g, acceptance: j.set.Acceptance[g.Name]}
		for _, n := range w.Nodes {
			if g.Selects(n.Labels) {
				s.nodes = append(s.nodes, n)
			}
		}
		j.subjects = append(j.subjects, s)
	}
	j.deadlocks = signal.Deadlocks(j.set.Gates, j.DaemonSets, w.labels())
	return j
}

// labels returns the labels of all nodes.
func (w *World) labels() iter.Seq[labels.Set] {
	return func(yield func(labels.Set) bool) {
		for _, n := range w.Nodes {
			if !yield(n.Labels) {
				return
			}
		}
	}
}

func (w *World) compile() *gateset.Set { return gateset.Of(w.Gates, w.Policy, gateset.IgnoreStatus) }

// CiliumNamespaces returns the namespaces in which a cilium-operator runs. Each has its own
// configuration.
func (w *World) CiliumNamespaces() (namespaces []string) {
	for i := range w.Deployments {
		if d := &w.Deployments[i]; runs(d, writers.CiliumOperator) {
			namespaces = append(namespaces, d.Namespace)
		}
	}
	return namespaces
}

// DaemonSetNamespaces returns the namespaces of the DaemonSets that gates depend on.
func (w *World) DaemonSetNamespaces() []string {
	return w.compile().Needs(&gate.DaemonSets{}).DaemonSetNamespaces
}
