// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/gate"
)

// podWatchesMax is how many watches of pods one namespace has at most, not
// counting one that is shared. While queries are few each has its own, so that
// no other pods travel; but a daemonSets signal may select hundreds. Beyond this
// many, one watch of all of the namespace's pods serves all queries that there
// are then. When half as many are left, each has its own again.
const podWatchesMax = 32

// sharedPods deals the pods of a namespace out to the sets of several queries.
type sharedPods struct {
	sets []sharedSet
	// byLabel finds sets by a label that all of their pods have, and others are
	// those that ask for no particular one: a pod is not held against each set.
	byLabel map[labelPair][]*sharedSet
	others  []*sharedSet
}

type labelPair struct{ key, value string }

// sharedSet is the set of one query.
type sharedSet struct {
	selector labels.Selector
	pods     *podSet
}

// dealtPod is a pod, by its node and the name that the sets know it by, and what it is
// to each set that it belongs to.
type dealtPod struct {
	node, name string
	to         []dealt
}

type dealt struct {
	set  *podSet
	fact podFact
}

var _ sink[*dealtPod] = (*sharedPods)(nil)

func newSharedPods(sets []sharedSet) *sharedPods {
	s := &sharedPods{sets: sets, byLabel: make(map[labelPair][]*sharedSet)}
	for i := range sets {
		if pair, ok := required(sets[i].selector); ok {
			s.byLabel[pair] = append(s.byLabel[pair], &sets[i])
		} else {
			s.others = append(s.others, &sets[i])
		}
	}
	return s
}

// required returns a label that whatever the selector selects must have.
func required(selector labels.Selector) (labelPair, bool) {
	all, _ := selector.Requirements()
	for _, r := range all {
		if value, ok := selector.RequiresExactMatch(r.Key()); ok {
			return labelPair{r.Key(), value}, true
		}
	}
	return labelPair{}, false
}

// convert makes a Pod into facts.
func (s *sharedPods) convert(o *corev1.Pod) *dealtPod {
	p := &dealtPod{node: o.Spec.NodeName, name: podName(o)}
	deal := func(sets []*sharedSet) {
		for _, set := range sets {
			if set.selector.Matches(labels.Set(o.Labels)) {
				p.to = append(p.to, dealt{set.pods, set.pods.convert(o)})
			}
		}
	}
	for key, value := range o.Labels {
		deal(s.byLabel[labelPair{key, value}])
	}
	deal(s.others)
	return p
}

// put implements sink. A pod that no longer has a query's labels is to that
// query as one that was deleted.
func (s *sharedPods) put(p *dealtPod) {
	for i := range s.sets {
		pods := s.sets[i].pods
		if fact, belongs := p.in(pods); belongs {
			pods.put(fact)
		} else {
			pods.dropName(p.node, p.name)
		}
	}
}

// drop implements sink.
func (s *sharedPods) drop(p *dealtPod) {
	for i := range s.sets {
		s.sets[i].pods.dropName(p.node, p.name)
	}
}

// replace implements sink.
func (s *sharedPods) replace(all []*dealtPod) {
	facts := make(map[*podSet][]podFact, len(s.sets))
	for _, p := range all {
		for _, d := range p.to {
			facts[d.set] = append(facts[d.set], d.fact)
		}
	}
	for i := range s.sets {
		s.sets[i].pods.replace(facts[s.sets[i].pods])
	}
}

// in returns what the pod is to a set; false if it does not belong to it.
func (p *dealtPod) in(set *podSet) (podFact, bool) {
	for _, d := range p.to {
		if d.set == set {
			return d.fact, true
		}
	}
	return podFact{}, false
}

// shares tells, by namespace, whose queries are to share one watch from now on
// (true), and whose are to have their own again (false). Other namespaces stay
// as they are.
func shares(before map[gate.PodQuery]*podFeed, needed map[gate.PodQuery]bool) map[string]bool {
	own, shared := make(map[string]int), make(map[string]int)
	for query := range needed {
		if feed := before[query]; feed != nil && feed.shared {
			shared[query.Namespace]++
		} else {
			own[query.Namespace]++
		}
	}
	out := make(map[string]bool)
	for namespace, count := range own {
		if count > podWatchesMax {
			out[namespace] = true
		}
	}
	for namespace, count := range shared {
		if count+own[namespace] <= podWatchesMax/2 {
			out[namespace] = false
		}
	}
	return out
}

// startSharedPods starts one watch for all needed queries of a namespace. A
// selector that cannot be parsed is left to the API server to refuse.
func (f *Feed) startSharedPods(ctx context.Context, namespace string, needed map[gate.PodQuery]bool, into map[gate.PodQuery]*podFeed) {
	r := f.newRunning(sharedPodsName(namespace))
	r.turned = f.handler.GatesChanged
	all := gate.PodQuery{Namespace: namespace}
	var sets []sharedSet
	for query := range needed {
		selector, err := labels.Parse(query.Selector)
		if query.Namespace != namespace || err != nil {
			continue
		}
		pods := newPodSet(f.tellOf(gate.Aspect{Kind: gate.AspectPods, Pods: query}), f.nodes, query.Annotation)
		sets = append(sets, sharedSet{selector, pods})
		into[query] = &podFeed{running: r, pods: pods, shared: true}
		all.Annotation = cmp.Or(query.Annotation, all.Annotation) // any has managed fields told
	}
	shared := newSharedPods(sets)
	in := &intake[*corev1.Pod, *dealtPod]{observer: r.observer, sink: shared, convert: shared.convert}
	f.start(ctx, r, func(ctx context.Context) { in.run(ctx, f.sources.pods(all), &corev1.Pod{}) })
}
