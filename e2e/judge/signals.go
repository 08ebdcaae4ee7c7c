// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// reading is the result of a signal, or of all signals of a gate.
type reading int

const (
	// notYet means that the signal does not hold.
	notYet reading = iota
	// unknown means that the signal may neither open nor close a gate.
	unknown
	// notJudged means that the judge does not implement this kind of signal.
	notJudged
	// holds means that the signal holds.
	holds
)

// evaluator evaluates signals on one node in a committed state, at a time. It is slow, and
// follows the wording of the API documentation.
type evaluator struct {
	revisions.Moment
	node *corev1.Node
	now  time.Time
	// boots are the node's boots; nil if evidence of the boot is not required.
	boots *boots
	// doubtful is the reading of what nodegate may or may not know.
	doubtful reading
	// transient reports whether taints with this key are temporary.
	transient func(key string) bool
}

// all returns the combined reading of a gate's signals, and why it is not holds.
func (l evaluator) all(signals []v1alpha1.Signal) (reading, string) {
	result, reasons := holds, []string(nil)
	for i := range signals {
		s := &signals[i]
		r, why := l.signal(s)
		if r != holds {
			reasons = append(reasons, fmt.Sprintf("signal %s: %s", s.Name, why))
		}
		// notYet takes precedence over unknown.
		result = min(result, r)
	}
	return result, strings.Join(reasons, "; ")
}

func (l evaluator) signal(s *v1alpha1.Signal) (reading, string) {
	if len(s.AnyOf) == 0 {
		return l.source(&s.SignalSource)
	}
	result, reasons := notYet, []string(nil)
	for i := range s.AnyOf {
		r, why := l.source(&s.AnyOf[i].SignalSource)
		result = max(result, r)
		reasons = append(reasons, why)
	}
	return result, "none of: " + strings.Join(reasons, ", ")
}

func (l evaluator) source(s *v1alpha1.SignalSource) (reading, string) {
	switch {
	case s.DaemonSet != nil:
		return l.daemonSet(s.DaemonSet)
	case s.DaemonSets != nil:
		return l.daemonSets(s.DaemonSets)
	case s.Pods != nil:
		return l.pods(s.Pods)
	case s.Condition != nil:
		return l.condition(s.Condition)
	case s.Label != nil:
		return keyValue("label", l.node.Labels, s.Label)
	case s.Annotation != nil:
		return keyValue("annotation", l.node.Annotations, s.Annotation)
	case s.CSIDriver != nil:
		return l.csiDriver(s.CSIDriver)
	case s.Completed != nil:
		return l.completed(s.Completed)
	case s.Resource != nil:
		return l.resource(s.Resource)
	case s.ResourceSlices != nil:
		return l.resourceSlices(s.ResourceSlices)
	case s.Object != nil:
		return notJudged, "signal object"
	case s.Expression != "":
		return notJudged, "signal expression"
	}
	return notJudged, "a signal of an unknown kind"
}

func yes(is bool, why string, args ...any) (reading, string) {
	if is {
		return holds, ""
	}
	return notYet, fmt.Sprintf(why, args...)
}

func keyValue(what string, have map[string]string, s *v1alpha1.KeyValueSignal) (reading, string) {
	value, found := have[s.Key]
	return yes(found && (s.Value == nil || *s.Value == value), "%s %s is %q (present: %v)", what, s.Key, value, found)
}

func (l evaluator) csiDriver(s *v1alpha1.CSIDriverSignal) (reading, string) {
	csi := l.CsiNode(l.node.Name)
	if csi == nil {
		return notYet, "the CSINode does not exist"
	}
	if !facts.OwnedBy(csi, l.node.UID) {
		return notYet, "the CSINode belongs to an earlier Node"
	}
	for _, d := range csi.Spec.Drivers {
		if d.Name == s.Name {
			limited := d.Allocatable != nil && d.Allocatable.Count != nil
			return yes(limited || !s.Allocatable, "driver %s reports no volume limit", s.Name)
		}
	}
	return notYet, "driver " + s.Name + " is not registered"
}

func (l evaluator) resource(s *v1alpha1.ResourceSignal) (reading, string) {
	least := resource.MustParse("1")
	if s.AtLeast != nil {
		least = *s.AtLeast
	}
	have, found := l.node.Status.Allocatable[corev1.ResourceName(s.Name)]
	return yes(found && have.Cmp(least) >= 0, "allocatable has %s of %s (present: %v)", have.String(), s.Name, found)
}

// condition returns the reading of a condition signal. If it has a pattern, one
// matching condition is sufficient.
func (l evaluator) condition(s *v1alpha1.ConditionSignal) (reading, string) {
	result, why, found := notYet, "", false
	for i := range l.node.Status.Conditions {
		if c := &l.node.Status.Conditions[i]; matches(s.Type, s.TypePattern, string(c.Type)) {
			r, because := l.conditionOf(s, c)
			result, why, found = max(result, r), because, true
		}
	}
	if !found {
		return yes(s.WhenMissing == v1alpha1.MissingHolds, "condition %s%s is missing", s.Type, s.TypePattern)
	}
	return result, why
}

// heartbeatSkew is the maximum difference between a node's clock and the API server's.
const heartbeatSkew = 10 * time.Second

func (l evaluator) conditionOf(s *v1alpha1.ConditionSignal, c *corev1.NodeCondition) (reading, string) {
	is := fmt.Sprintf("condition %s is %s", c.Type, c.Status)
	if s.MaxHeartbeatAgeSeconds != nil {
		age := l.now.Sub(c.LastHeartbeatTime.Time)
		limit := time.Duration(*s.MaxHeartbeatAgeSeconds)*time.Second + heartbeatSkew
		if age > limit || age < -limit {
			return unknown, is + " with a heartbeat that is too old or too new"
		}
		if l.boots != nil && !l.boots.current(l.node).since.IsZero() && c.LastHeartbeatTime.Time.Before(l.boots.current(l.node).since.Truncate(time.Second)) {
			return unknown, is + " with a heartbeat from the previous boot"
		}
	}
	switch {
	case !matches(s.Status, s.StatusPattern, string(c.Status)) && c.Status == corev1.ConditionUnknown:
		return unknown, is
	case !matches(s.Status, s.StatusPattern, string(c.Status)):
		return notYet, is
	case s.ForSeconds > 0 && c.LastTransitionTime.IsZero():
		return unknown, is + " without a transition time"
	}
	wait := time.Duration(s.ForSeconds) * time.Second
	return yes(wait == 0 || !l.now.Before(c.LastTransitionTime.Add(wait)), "%s only since %s", is, c.LastTransitionTime.UTC().Format(time.RFC3339))
}

// matches reports whether text equals exact or, if pattern is not empty, matches the
// pattern as a whole.
func matches(exact, pattern, text string) bool {
	if pattern == "" {
		return text == exact
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	return err == nil && re.MatchString(text)
}

func (l evaluator) pods(s *v1alpha1.PodsSignal) (reading, string) {
	selector, err := s.Selector.AsSelector()
	if err != nil {
		return unknown, err.Error()
	}
	wait := time.Duration(s.MinReadySeconds) * time.Second
	found, ready, why := 0, 0, "no pod matches"
	for _, pod := range l.Pods(l.node.Name) {
		if pod.Namespace != s.Namespace || !selector.Matches(labels.Set(pod.Labels)) || facts.IsMirror(pod) || facts.IsFinished(pod) {
			continue
		}
		found++
		no := ""
		if s.ReadyBy != v1alpha1.ReadyByAnnotation {
			no = l.notReady(pod, wait)
		}
		if s.ReadyBy == v1alpha1.ReadyByAnnotation || s.ReadyBy == v1alpha1.ReadyByEither && no != "" {
			no = l.notMarked(pod, s.ReadyAnnotation, wait)
		}
		if no == "" {
			ready++
		} else {
			why = fmt.Sprintf("pod %s/%s %s", pod.Namespace, pod.Name, no)
		}
	}
	if s.Require == v1alpha1.RequireAll {
		return yes(found > 0 && ready == found, "%s", why)
	}
	return yes(ready > 0, "%s", why)
}

func (l evaluator) daemonSet(s *v1alpha1.DaemonSetSignal) (reading, string) {
	for _, ds := range l.DaemonSets() {
		if ds.Namespace == s.Namespace && ds.Name == s.Name {
			return l.daemon(ds, s.MinReadySeconds)
		}
	}
	return notYet, fmt.Sprintf("DaemonSet %s/%s does not exist", s.Namespace, s.Name)
}

func (l evaluator) daemonSets(s *v1alpha1.DaemonSetsSignal) (reading, string) {
	if _, err := s.Selector.AsSelector(); err != nil {
		return unknown, err.Error()
	}
	found := false
	for _, ds := range l.DaemonSets() {
		if !l.requires(s, ds) {
			continue
		}
		found = true
		if r, why := l.daemon(ds, s.MinReadySeconds); r != holds {
			return r, why
		}
	}
	// While a node is being set up, temporary taints can repel its DaemonSets.
	for _, t := range l.node.Spec.Taints {
		if !found && l.transient(t.Key) && !isGateKey(l.Moment, t.Key) {
			return notYet, "no DaemonSet is expected on the node yet, which has the temporary taint " + t.Key
		}
	}
	return holds, ""
}

// requires reports whether the signal requires a pod of the DaemonSet on the node.
func (l evaluator) requires(s *v1alpha1.DaemonSetsSignal, ds *appsv1.DaemonSet) bool {
	selector, err := s.Selector.AsSelector()
	return err == nil && slices.Contains(s.Namespaces, ds.Namespace) && selector.Matches(labels.Set(ds.Labels)) && l.belongs(ds)
}

// daemon returns holds if the DaemonSet has a ready pod of its own on the node.
func (l evaluator) daemon(ds *appsv1.DaemonSet, minReadySeconds int32) (reading, string) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return unknown, err.Error()
	}
	why := fmt.Sprintf("DaemonSet %s/%s has no pod on the node", ds.Namespace, ds.Name)
	for _, pod := range l.Pods(l.node.Name) {
		if pod.Namespace != ds.Namespace || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		no := notOf(ds, pod)
		if no == "" {
			no = l.notReady(pod, time.Duration(minReadySeconds)*time.Second)
		}
		if no == "" {
			return holds, ""
		}
		why = fmt.Sprintf("pod %s/%s %s", pod.Namespace, pod.Name, no)
	}
	return notYet, why
}

// notOf returns why a pod that a DaemonSet selects does not count as one of its pods, or "".
func notOf(ds *appsv1.DaemonSet, pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case facts.IsMirror(pod):
		return "is a mirror pod"
	case owner == nil || owner.UID != ds.UID:
		return "is not owned by the DaemonSet"
	case pod.Labels[appsv1.ControllerRevisionHashLabelKey] == "" || pod.Labels[v1alpha1.DaemonPodLabel] == "":
		return "was not created by the DaemonSet controller"
	case facts.IsFinished(pod):
		return "has finished"
	}
	return ""
}

// isGateKey reports whether a gate uses the taint key in this state.
func isGateKey(m revisions.Moment, key string) bool {
	return slices.ContainsFunc(m.Gates(), func(ng *v1alpha1.NodeGate) bool {
		return slices.ContainsFunc(ng.Spec.Taints(), func(t v1alpha1.Taint) bool { return t.Key == key })
	})
}

// belongs reports whether the DaemonSet controller creates a pod for the node, now or
// after temporary taints are removed.
func (l evaluator) belongs(ds *appsv1.DaemonSet) bool {
	spec := &ds.Spec.Template.Spec
	if spec.NodeName != "" && spec.NodeName != l.node.Name {
		return false
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(l.node)
	if err != nil || !match {
		return false
	}
	for i := range l.node.Spec.Taints {
		t := &l.node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || l.transient(t.Key) || isGateKey(l.Moment, t.Key) {
			continue
		}
		if !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), spec.Tolerations, t, false) {
			return false
		}
	}
	return true
}
