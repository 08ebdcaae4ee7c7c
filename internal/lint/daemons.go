// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// sources returns all of a gate's signals, by name, those within anyOf among them.
// Nested is true of these: another one may hold in their place.
func sources(spec *v1alpha1.NodeGateSpec, each func(name string, s *v1alpha1.SignalSource, nested bool)) {
	for _, list := range [][]v1alpha1.Signal{spec.OpenWhen, spec.CloseWhen} {
		for i := range list {
			each(list[i].Name, &list[i].SignalSource, false)
			for j := range list[i].AnyOf {
				each(list[i].Name+"/"+list[i].AnyOf[j].Name, &list[i].AnyOf[j].SignalSource, true)
			}
		}
	}
}

// daemonSet returns a DaemonSet; nil if there is none. It is false where that is
// not known.
func (j *judge) daemonSet(namespace, name string) (*gate.DaemonSet, bool) {
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

// selected returns the DaemonSets that a signal over several selects. It is false
// where that is not known.
func (j *judge) selected(s *v1alpha1.DaemonSetsSignal) (found []*gate.DaemonSet, known bool) {
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
		if ds := &j.DaemonSets.Items[i]; slices.Contains(s.Namespaces, ds.Namespace) && selector.Matches(ds.Labels) {
			found = append(found, ds)
		}
	}
	return found, true
}

// daemons returns the DaemonSets that a gate waits for, each once.
func (j *judge) daemons(s *subject) []*gate.DaemonSet {
	if !s.waits() {
		return nil
	}
	var all []*gate.DaemonSet
	sources(&s.Spec, func(_ string, source *v1alpha1.SignalSource, _ bool) {
		if source.DaemonSet != nil {
			if ds, _ := j.daemonSet(source.DaemonSet.Namespace, source.DaemonSet.Name); ds != nil {
				all = append(all, ds)
			}
		}
		if source.DaemonSets != nil {
			found, _ := j.selected(source.DaemonSets)
			all = append(all, found...)
		}
	})
	seen := make(map[string]bool)
	return slices.DeleteFunc(all, func(ds *gate.DaemonSet) bool {
		twice := seen[ds.String()]
		seen[ds.String()] = true
		return twice
	})
}

func daemonSetMissing(j *judge, s *subject) (hits []hit) {
	sources(&s.Spec, func(name string, source *v1alpha1.SignalSource, _ bool) {
		if source.DaemonSet == nil {
			return
		}
		if ds, known := j.daemonSet(source.DaemonSet.Namespace, source.DaemonSet.Name); known && ds == nil {
			object := source.DaemonSet.Namespace + "/" + source.DaemonSet.Name
			hits = append(hits, hit{"daemonset/" + object, fmt.Sprintf("signal %s waits for DaemonSet %s, which does not exist", name, object)})
		}
	})
	return hits
}

func daemonSetMissesNodes(j *judge, s *subject) (hits []hit) {
	if !s.waits() || len(s.nodes) == 0 {
		return nil
	}
	sources(&s.Spec, func(name string, source *v1alpha1.SignalSource, nested bool) {
		if source.DaemonSet == nil || nested {
			return
		}
		ds, _ := j.daemonSet(source.DaemonSet.Namespace, source.DaemonSet.Name)
		if ds == nil {
			return
		}
		var missed []string
		for _, n := range s.nodes {
			if fits, err := ds.Affinity.Match(placed(n)); err != nil || !fits || ds.NodeName != "" && ds.NodeName != n.Name {
				missed = append(missed, n.Name)
			}
		}
		if len(missed) > 0 {
			hits = append(hits, hit{"daemonset/" + ds.String(), fmt.Sprintf("signal %s waits for DaemonSet %s, which by its node selector or affinity does not run on %d of the %d nodes that the gate selects: %s",
				name, ds, len(missed), len(s.nodes), some(missed))})
		}
	})
	return hits
}

// placed is what placement goes by, of one node.
func placed(n *gate.Node) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
}

func daemonDoesNotTolerate(j *judge, s *subject) (hits []hit) {
	for _, ds := range j.daemons(s) {
		if lacks := untolerated(ds.Tolerations, s.Taints()); len(lacks) > 0 {
			hits = append(hits, hit{"daemonset/" + ds.String(), fmt.Sprintf("the gate waits for DaemonSet %s, which does not tolerate %s", ds, strings.Join(lacks, " nor "))})
		}
	}
	return hits
}

// untolerated returns those of the taints that are not tolerated, in words.
func untolerated(tolerations []corev1.Toleration, taints []v1alpha1.Taint) (texts []string) {
	for _, t := range taints {
		taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), tolerations, &taint, false) {
			texts = append(texts, gate.TaintText(t))
		}
	}
	return texts
}

func daemonWithoutProbe(j *judge, s *subject) (hits []hit) {
	for _, ds := range j.daemons(s) {
		if ds.Unprobed {
			hits = append(hits, hit{"daemonset/" + ds.String(), fmt.Sprintf("no container of DaemonSet %s has a readinessProbe", ds)})
		}
	}
	return hits
}

func selectsNoDaemonSet(j *judge, s *subject) (hits []hit) {
	sources(&s.Spec, func(name string, source *v1alpha1.SignalSource, _ bool) {
		if source.DaemonSets == nil {
			return
		}
		if found, known := j.selected(source.DaemonSets); known && len(found) == 0 {
			selector, _ := source.DaemonSets.Selector.AsSelector()
			hits = append(hits, hit{"", fmt.Sprintf("signal %s selects no DaemonSet: none in %s matches %q", name, strings.Join(source.DaemonSets.Namespaces, ", "), selectorText(selector))})
		}
	})
	return hits
}

func selectorText(s labels.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func gatesDeadlock(j *judge, s *subject) (hits []hit) {
	for _, d := range signal.Deadlocks(j.gates, j.DaemonSets)[s.name()] {
		hits = append(hits, hit{"nodegate/" + d.With, fmt.Sprintf("it waits for DaemonSet %s, which does not tolerate gate %s, and that one waits for DaemonSet %s, which does not tolerate this gate",
			d.Daemon, d.With, d.Other)})
	}
	return hits
}

// someMax is how many names are named where there are many.
const someMax = 3

func some(names []string) string {
	text := strings.Join(names[:min(len(names), someMax)], ", ")
	if rest := len(names) - someMax; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
