// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/signal"
)

// sources returns an iterator over all of a gate's signals.
func (s *subject) sources() iter.Seq2[[]string, *v1alpha1.SignalSource] {
	return v1alpha1.Sources(s.Spec.OpenWhen, s.Spec.CloseWhen)
}

// daemonSet returns a DaemonSet, or nil if it does not exist. The second result is false
// if this is unknown.
func (j *checker) daemonSet(namespace, name string) (*gate.DaemonSet, bool) {
	if j.DaemonSets == nil || !j.DaemonSets.Observed[namespace] {
		return nil, false
	}
	for i := range j.DaemonSets.Items {
		if ds := &j.DaemonSets.Items[i]; ds.Namespace == namespace && ds.Name == name {
			return ds, true
		}
	}
	return nil, true
}

// selected returns the DaemonSets that a daemonSets signal selects, without those that are
// being deleted, as the signal does. known is false if they are unknown.
func (j *checker) selected(s *v1alpha1.DaemonSetsSignal) (found []*gate.DaemonSet, known bool) {
	selector, err := s.Selector.AsSelector()
	if err != nil || j.DaemonSets == nil {
		return nil, false
	}
	for _, namespace := range s.Namespaces {
		if !j.DaemonSets.Observed[namespace] {
			return nil, false
		}
	}
	for i := range j.DaemonSets.Items {
		if ds := &j.DaemonSets.Items[i]; !ds.Deleting && slices.Contains(s.Namespaces, ds.Namespace) && selector.Matches(ds.Labels) {
			found = append(found, ds)
		}
	}
	return found, true
}

// daemons returns the DaemonSets that a gate waits for, without duplicates.
func (j *checker) daemons(s *subject) []*gate.DaemonSet {
	return j.daemonsOf(s, func([]string) bool { return true })
}

// required returns the DaemonSets without which a gate does not open, without duplicates.
func (j *checker) required(s *subject) []*gate.DaemonSet {
	return j.daemonsOf(s, func(names []string) bool { return j.isRequired(s, names) })
}

// isRequired reports whether a gate opens only if the signal with these names holds. In anyOf,
// another signal may hold instead, unless all of them have a problem.
func (j *checker) isRequired(s *subject, names []string) bool {
	if len(names) == 1 {
		return true
	}
	return slices.ContainsFunc(s.Signals, func(n gate.NamedSignal) bool {
		return n.Name == names[0] && signal.Diagnose(n.Signal, s.Taints(), j.DaemonSets).State == gate.NotYet
	})
}

// daemonsOf returns the DaemonSets that those of a gate's signals wait for whose names are
// included, without duplicates.
func (j *checker) daemonsOf(s *subject, included func(names []string) bool) []*gate.DaemonSet {
	if !s.waits() {
		return nil
	}
	var all []*gate.DaemonSet
	for names, source := range s.sources() {
		if !included(names) {
			continue
		}
		if source.DaemonSet != nil {
			if ds, _ := j.daemonSet(source.DaemonSet.Namespace, source.DaemonSet.Name); ds != nil {
				all = append(all, ds)
			}
		}
		if source.DaemonSets != nil {
			found, _ := j.selected(source.DaemonSets)
			all = append(all, found...)
		}
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(all, func(ds *gate.DaemonSet) bool {
		twice := seen[ds.String()]
		seen[ds.String()] = true
		return twice
	})
}

func daemonSetMissing(j *checker, s *subject) (hits []hit) {
	if !s.waits() {
		return nil
	}
	for names, source := range s.sources() {
		if source.DaemonSet == nil || !j.isRequired(s, names) {
			continue
		}
		problem := "does not exist"
		switch ds, known := j.daemonSet(source.DaemonSet.Namespace, source.DaemonSet.Name); {
		case !known, ds != nil && !ds.Deleting:
			continue
		case ds != nil:
			problem = "is being deleted"
		}
		object := source.DaemonSet.Namespace + "/" + source.DaemonSet.Name
		hits = append(hits, hit{"daemonset/" + object, fmt.Sprintf("signal %s waits for DaemonSet %s, which %s", strings.Join(names, "/"), object, problem)})
	}
	return hits
}

func daemonSetMissesNodes(j *checker, s *subject) (hits []hit) {
	if !s.waits() || len(s.nodes) == 0 {
		return nil
	}
	for names, source := range s.sources() {
		if source.DaemonSet == nil || len(names) > 1 { // in anyOf, another signal may hold instead
			continue
		}
		ds, _ := j.daemonSet(source.DaemonSet.Namespace, source.DaemonSet.Name)
		if ds == nil {
			continue
		}
		if missed := j.missed(s, ds); len(missed) > 0 {
			hits = append(hits, hit{"daemonset/" + ds.String(), fmt.Sprintf("signal %s waits for DaemonSet %s, which does not run on %d of the %d nodes that the gate selects, because of its node selector, affinity or missing tolerations: %s",
				names[0], ds, len(missed), len(s.nodes), printer.Some(missed, namesMax))})
		}
	}
	return hits
}

// missed returns the names of the nodes of a gate on which a DaemonSet does not run, according
// to the rules by which the controller reads signals. The controller's option for additional
// transient taints is not known here.
func (j *checker) missed(s *subject, ds *gate.DaemonSet) (names []string) {
	transient := gate.Transient{GateKeys: j.set.Keys}
	for _, n := range s.nodes {
		facts := &gate.Facts{Node: *n, Transient: transient}
		in := gate.Input{Facts: facts, Taint: s.Taint, OtherTaint: s.TaintInUse(), Lasting: j.lasting[n]}
		if !signal.Belongs(ds, in) {
			names = append(names, n.Name)
		}
	}
	return names
}

func daemonDoesNotTolerate(j *checker, s *subject) (hits []hit) {
	required := j.required(s)
	for _, ds := range required {
		if lacks := untolerated(ds.Tolerations, s.Taints()); len(lacks) > 0 {
			what := fmt.Sprintf("the gate waits for DaemonSet %s, which does not tolerate %s", ds, strings.Join(lacks, " and "))
			if j.TolerationsPolicy && s.acceptance.Accepted && gateset.MayTolerate(&s.Spec) {
				what += "; the API server adds the toleration when the DaemonSet is next updated"
			}
			hits = append(hits, hit{"daemonset/" + ds.String(), what})
		}
	}
	for _, ds := range j.intolerantPodOwners(s) {
		if slices.Contains(required, ds) {
			continue
		}
		hits = append(hits, hit{"daemonset/" + ds.String(), fmt.Sprintf("the gate waits for pods of DaemonSet %s, which does not tolerate %s; 'kubectl gate tolerate' does not change it, because the gate selects pods by their labels",
			ds, strings.Join(untolerated(ds.Tolerations, s.Taints()), " and "))})
	}
	return hits
}

// intolerantPodOwners returns the DaemonSets whose pods a pods signal selects, without
// duplicates, if none of those of the signal tolerates the gate's taints. Pods of other owners
// do not run on every node.
func (j *checker) intolerantPodOwners(s *subject) (all []*gate.DaemonSet) {
	if !s.waits() || j.DaemonSets == nil {
		return nil
	}
	for names, source := range s.sources() {
		if source.Pods == nil || len(names) > 1 { // in anyOf, another signal may hold instead
			continue
		}
		selector, err := source.Pods.Selector.AsSelector()
		if err != nil {
			continue
		}
		var owners []*gate.DaemonSet
		for i := range j.DaemonSets.Items {
			if ds := &j.DaemonSets.Items[i]; !ds.Deleting && ds.Namespace == source.Pods.Namespace && selector.Matches(ds.PodLabels) {
				owners = append(owners, ds)
			}
		}
		if !slices.ContainsFunc(owners, func(ds *gate.DaemonSet) bool { return len(untolerated(ds.Tolerations, s.Taints())) == 0 }) {
			all = append(all, slices.DeleteFunc(owners, func(ds *gate.DaemonSet) bool { return slices.Contains(all, ds) })...)
		}
	}
	return all
}

func tolerationsNotAdded(j *checker, s *subject) []hit {
	if j.TolerationsPolicy || j.Unread[TolerationsPolicy] != nil || !gateset.MayTolerate(&s.Spec) {
		return nil
	}
	name := v1alpha1.TolerationsPolicy
	return []hit{{"mutatingadmissionpolicy/" + name, "the gate sets tolerate, but the policy " + name + " or its binding does not exist"}}
}

// agentNotConfined reports the gates that close when a shutdown is announced.
func agentNotConfined(j *checker, s *subject) []hit {
	if !j.UnconfinedAgent || !s.waits() || s.Reclose == v1alpha1.RecloseNever {
		return nil
	}
	name := v1alpha1.AppAgent
	return []hit{{"validatingadmissionpolicy/" + name, "ClusterRole " + name + " permits writes to the status of Nodes, but the policy " + name + " or its binding does not exist, or does not deny"}}
}

// holdWithoutAgent reports the gates that hold pods, also paused ones, which stay closed on
// nodes.
func holdWithoutAgent(j *checker, s *subject) []hit {
	if !j.AgentMissing || !s.acceptance.Accepted || s.Spec.Mode == v1alpha1.ModeDryRun || s.Spec.BypassedPods != v1alpha1.BypassedHold {
		return nil
	}
	name := v1alpha1.AppAgent
	return []hit{{"clusterrole/" + name, "the gate sets bypassedPods to Hold, but the node agent is not installed: ClusterRole " + name + " does not exist"}}
}

// untolerated returns the taints that are not tolerated, as text.
func untolerated(tolerations []corev1.Toleration, taints []v1alpha1.Taint) (texts []string) {
	for _, t := range taints {
		taint := t.Core()
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !gate.Tolerates(tolerations, taint) {
			texts = append(texts, gate.TaintText(t))
		}
	}
	return texts
}

func daemonWithoutProbe(j *checker, s *subject) (hits []hit) {
	for _, ds := range j.daemons(s) {
		if ds.Unprobed {
			hits = append(hits, hit{"daemonset/" + ds.String(), fmt.Sprintf("no container of DaemonSet %s has a readinessProbe", ds)})
		}
	}
	return hits
}

func selectsNoDaemonSet(j *checker, s *subject) (hits []hit) {
	if !s.waits() {
		return nil
	}
	for names, source := range s.sources() {
		if source.DaemonSets == nil {
			continue
		}
		if found, known := j.selected(source.DaemonSets); known && len(found) == 0 {
			selector, _ := source.DaemonSets.Selector.AsSelector()
			hits = append(hits, hit{"", fmt.Sprintf("signal %s selects no DaemonSet: no DaemonSet in %s matches %q", strings.Join(names, "/"), strings.Join(source.DaemonSets.Namespaces, ", "), selectorText(selector))})
		}
	}
	return hits
}

func selectorText(s labels.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func gatesDeadlock(j *checker, s *subject) (hits []hit) {
	for _, d := range j.deadlocks[s.name()] {
		hits = append(hits, hit{"nodegate/" + d.With, fmt.Sprintf("the gate waits for DaemonSet %s, which does not tolerate the taint of gate %s, and gate %[2]s waits for DaemonSet %[3]s, which does not tolerate this gate's taint",
			d.Daemon, d.With, d.Other)})
	}
	return hits
}

// namesMax is the maximum number of names in a message.
const namesMax = 3
