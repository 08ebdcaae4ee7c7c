// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// SharedPods distributes the pods of a namespace to the sets of several queries.
type SharedPods struct {
	Sets []SharedSet
	// byLabel has sets by a label that all of their pods have. others has the sets
	// without such a label. Thus a pod is not matched against all sets.
	byLabel map[labelPair][]*SharedSet
	others  []*SharedSet
}

type labelPair struct{ key, value string }

// SharedSet is the set of one query.
type SharedSet struct {
	Selector labels.Selector
	Pods     *Pods
}

// SharedPod is a pod with its node, its name, and its facts for each set that it belongs
// to.
type SharedPod struct {
	node, name string
	matches    []match
}

type match struct {
	set  *Pods
	fact Pod
}

var _ reflector.Sink[*SharedPod] = (*SharedPods)(nil)

// NewSharedPods returns a SharedPods for sets.
func NewSharedPods(sets []SharedSet) *SharedPods {
	s := &SharedPods{Sets: sets, byLabel: make(map[labelPair][]*SharedSet)}
	for i := range sets {
		if pair, ok := required(sets[i].Selector); ok {
			s.byLabel[pair] = append(s.byLabel[pair], &sets[i])
		} else {
			s.others = append(s.others, &sets[i])
		}
	}
	return s
}

// Query returns a query whose pods contain what all sets need (see clients.FactClients).
func (s *SharedPods) Query() gate.PodQuery {
	var all gate.PodQuery
	for _, set := range s.Sets { // one query that needs more of the pods is enough
		q := set.Pods.query
		all.Namespace, all.Annotation, all.Runs = q.Namespace, cmp.Or(q.Annotation, all.Annotation), all.Runs || q.Runs
	}
	return all
}

// required returns a label that all pods that match the selector have.
func required(selector labels.Selector) (labelPair, bool) {
	all, _ := selector.Requirements()
	for _, r := range all {
		if value, ok := selector.RequiresExactMatch(r.Key()); ok {
			return labelPair{r.Key(), value}, true
		}
	}
	return labelPair{}, false
}

// Convert returns the facts about a Pod.
func (s *SharedPods) Convert(o *corev1.Pod) *SharedPod {
	p := &SharedPod{node: o.Spec.NodeName, name: podName(o)}
	addMatches := func(sets []*SharedSet) {
		for _, set := range sets {
			if set.Selector.Matches(labels.Set(o.Labels)) {
				p.matches = append(p.matches, match{set.Pods, set.Pods.Convert(o)})
			}
		}
	}
	for key, value := range o.Labels {
		addMatches(s.byLabel[labelPair{key, value}])
	}
	addMatches(s.others)
	return p
}

// Put implements reflector.Sink. A pod that no longer matches a query is removed from its
// set.
func (s *SharedPods) Put(p *SharedPod) {
	for i := range s.Sets {
		pods := s.Sets[i].Pods
		if fact, belongs := p.in(pods); belongs {
			pods.Put(fact)
		} else {
			pods.dropName(p.node, p.name)
		}
	}
}

// Drop implements reflector.Sink.
func (s *SharedPods) Drop(p *SharedPod) {
	for i := range s.Sets {
		s.Sets[i].Pods.dropName(p.node, p.name)
	}
}

// Replace implements reflector.Sink.
func (s *SharedPods) Replace(all []*SharedPod) {
	facts := make(map[*Pods][]Pod, len(s.Sets))
	for _, p := range all {
		for _, d := range p.matches {
			facts[d.set] = append(facts[d.set], d.fact)
		}
	}
	for i := range s.Sets {
		s.Sets[i].Pods.Replace(facts[s.Sets[i].Pods])
	}
}

// in returns the facts for a set, and whether the pod belongs to it.
func (p *SharedPod) in(set *Pods) (Pod, bool) {
	for _, d := range p.matches {
		if d.set == set {
			return d.fact, true
		}
	}
	return Pod{}, false
}
