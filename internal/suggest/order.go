// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
)

// recentAge is the maximum age of nodes on which the order of starts is compared. On older
// nodes, daemons have been updated and pods have been replaced.
const recentAge = 24 * time.Hour

// setUpTime is the time after a node's creation in which a daemon's pod counts as the first
// one on the node.
const setUpTime = 10 * time.Minute

// IsRecent reports whether the order of starts is compared on the node.
func IsRecent(n *gate.Node, now time.Time) bool {
	return !n.Created.IsZero() && now.Sub(n.Created) < recentAge
}

// Pod contains the parts of a bound pod that the order of starts depends on.
type Pod struct {
	Namespace, Name, Node string
	// DaemonSet is the UID of the DaemonSet to which the pod belongs, or "".
	DaemonSet types.UID
	// HostNetwork is true if the pod does not need the pod network. Mirror is true for
	// static pods.
	HostNetwork, Mirror bool
	// Restarted is true if a container, apart from init containers, has been restarted: Ready
	// is then not the first time.
	Restarted bool
	// Bound is the time at which the pod was bound to the node, Started the earliest known
	// start of a container, Ready the time at which it became ready, and Failed that of its
	// last failure. Running is the time since which all containers run, apart from init
	// containers. Unknown times are zero.
	Bound, Started, Ready, Failed, Running time.Time
}

// NewPod returns the parts of a pod.
func NewPod(o *corev1.Pod) Pod {
	p := Pod{
		Namespace: o.Namespace, Name: o.Name, Node: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork, Bound: o.CreationTimestamp.Time,
	}
	_, p.Mirror = o.Annotations[corev1.MirrorPodAnnotationKey]
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "DaemonSet" {
		p.DaemonSet = owner.UID
	}
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		switch {
		case c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero():
		case c.Type == corev1.PodScheduled:
			p.Bound = c.LastTransitionTime.Time
		case c.Type == corev1.PodReady:
			p.Ready = c.LastTransitionTime.Time
		}
	}
	for i := range o.Status.ContainerStatuses {
		p.Restarted = p.Restarted || o.Status.ContainerStatuses[i].RestartCount > 0
	}
	p.Running = runningSince(o.Status.ContainerStatuses)
	// Other containers start after the init containers, which may need the daemon as well.
	for _, statuses := range [][]corev1.ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
		for i := range statuses {
			p.addContainer(&statuses[i])
		}
	}
	return p
}

// runningSince returns the latest start of the containers. It is zero if one of them does not run.
func runningSince(statuses []corev1.ContainerStatus) (latest time.Time) {
	for i := range statuses {
		running := statuses[i].State.Running
		if running == nil {
			return time.Time{}
		}
		if running.StartedAt.After(latest) {
			latest = running.StartedAt.Time
		}
	}
	return latest
}

// addContainer adds the start and the failure of a container, if it is earlier or later.
func (p *Pod) addContainer(c *corev1.ContainerStatus) {
	started := func(at metav1.Time) {
		if !at.IsZero() && (p.Started.IsZero() || at.Time.Before(p.Started)) {
			p.Started = at.Time
		}
	}
	if c.State.Running != nil {
		started(c.State.Running.StartedAt)
	}
	for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if t == nil {
			continue
		}
		started(t.StartedAt)
		if t.ExitCode != 0 && t.FinishedAt.After(p.Failed) {
			p.Failed = t.FinishedAt.Time
		}
	}
}

// String returns the pod as namespace/name.
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// observation is what was observed about a daemon on the recent nodes.
type observation struct {
	// orderNodes are the nodes on which pods started only after the daemon's pod had become
	// ready, and failureNodes those on which pods failed before that.
	orderNodes, failureNodes []string
	// waited and failed are the pods.
	waited, failed []string
	// contradicted is true if pods run that started earlier on some node.
	contradicted bool
}

// compareStarts adds the evidence from the order of starts on recent nodes.
func (f *finder) compareStarts() {
	byNode := make(map[string][]*Pod)
	for i := range f.Pods {
		byNode[f.Pods[i].Node] = append(byNode[f.Pods[i].Node], &f.Pods[i])
	}
	seen := make(map[types.UID]*observation)
	for _, n := range f.Nodes {
		if IsRecent(n, f.Now) && len(byNode[n.Name]) > 0 {
			f.compared++
			compareOn(n, byNode[n.Name], seen)
		}
	}
	var explained []string // nodes on which a daemon with other evidence explains the order
	for i := range f.daemons {
		d := &f.daemons[i]
		o := seen[d.UID]
		if o == nil {
			continue
		}
		if slices.ContainsFunc(d.evidence, isStructural) || f.isKnown(d) {
			explained = slices.Concat(explained, o.orderNodes, o.failureNodes)
		}
	}
	for i := range f.daemons {
		d := &f.daemons[i]
		if o := seen[d.UID]; o != nil {
			if !slices.ContainsFunc(d.evidence, isStructural) && !f.isKnown(d) {
				o.without(explained)
			}
			d.addObservation(o)
		}
	}
}

// compareOn compares the starts of daemons and other pods on a node.
func compareOn(n *gate.Node, pods []*Pod, seen map[types.UID]*observation) {
	for _, daemon := range pods {
		first := !daemon.Restarted && !daemon.Bound.Before(n.Created) && daemon.Bound.Sub(n.Created) <= setUpTime
		if daemon.DaemonSet == "" || daemon.Ready.IsZero() || !first {
			continue
		}
		o := seen[daemon.DaemonSet]
		if o == nil {
			o = &observation{}
			seen[daemon.DaemonSet] = o
		}
		o.add(n.Name, daemon.Ready, pods)
	}
}

// add adds the pods of a node on which the daemon's pod became ready at this time.
func (o *observation) add(node string, ready time.Time, pods []*Pod) {
	var waited, failed []string
	for _, p := range pods {
		switch {
		case p.DaemonSet != "" || p.HostNetwork || p.Mirror || !p.Bound.Before(ready):
		case !p.Running.IsZero() && p.Running.Before(ready): // whether or not it failed before
			o.contradicted = true
		case !p.Failed.IsZero() && p.Failed.Before(ready):
			failed = append(failed, p.String())
		case p.Started.IsZero():
		case p.Started.Before(ready):
			o.contradicted = true
		default:
			waited = append(waited, p.String())
		}
	}
	if len(waited) > 0 {
		o.orderNodes, o.waited = append(o.orderNodes, node), append(o.waited, waited...)
	}
	if len(failed) > 0 {
		o.failureNodes, o.failed = append(o.failureNodes, node), append(o.failed, failed...)
	}
}

// without removes what was observed if a daemon with other evidence explains all of it.
func (o *observation) without(explained []string) {
	isExplained := func(node string) bool { return slices.Contains(explained, node) }
	if o.orderNodes = slices.DeleteFunc(o.orderNodes, isExplained); len(o.orderNodes) == 0 {
		o.waited = nil
	}
	if o.failureNodes = slices.DeleteFunc(o.failureNodes, isExplained); len(o.failureNodes) == 0 {
		o.failed = nil
	}
}

// podsMax is the maximum number of pods in a text.
const podsMax = 3

// addObservation adds what was observed as evidence, unless pods run that started before the
// daemon was ready: these pods do not need it.
func (d *daemon) addObservation(o *observation) {
	if o.contradicted {
		return
	}
	if n := len(o.orderNodes); n > 0 {
		d.evidence = append(d.evidence, Evidence{StartOrder, fmt.Sprintf(
			"on %s, pods that had been bound before the daemon's pod was ready started only after that: %s",
			printer.Count(n, "node"), printer.Some(o.waited, podsMax)), o.orderNodes})
	}
	if n := len(o.failureNodes); n > 0 {
		d.evidence = append(d.evidence, Evidence{Failures, fmt.Sprintf(
			"on %s, pods failed before the daemon's pod was ready, and not after that: %s",
			printer.Count(n, "node"), printer.Some(o.failed, podsMax)), o.failureNodes})
	}
}
