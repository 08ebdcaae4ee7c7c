// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// provenAfter is how long a node must be Ready before a pod that is known from the
// previous boot counts. A kubelet corrects pod statuses sooner than that.
const provenAfter = time.Minute

// boot is one boot of one Node, as recorded in etcd.
type boot struct {
	uid types.UID
	id  string
	// from is the first revision with this boot; since is the earliest time at which
	// it can have been committed, and zero for a boot that is older than the history.
	from  int64
	since time.Time
	// after is the last revision that precedes this boot: the one before from or, if
	// the node was already unreachable or shutting down, the one with which that began.
	after int64
	// before is the set of pod incarnations that are known from the previous boot.
	before map[string]bool
}

// boots are the boots of one node.
type boots struct {
	h    *revisions.History
	name string
	list []boot
	// becameReady are the revisions with which the node became Ready, in order.
	becameReady []int64
}

func newBoots(h *revisions.History, name string) *boots {
	b := &boots{h: h, name: name}
	var last *corev1.Node
	quiet := int64(0) // the revision with which the node became unreachable, or began to shut down
	wasReady := false
	for i, v := range h.VersionsOf(revisions.ID{Kind: revisions.KindNode, Name: name}) {
		node, ok := v.Object.(*corev1.Node)
		ready := ok && facts.ReadyStatus(node) == corev1.ConditionTrue
		if ready && !wasReady && i > 0 {
			b.becameReady = append(b.becameReady, v.Revision)
		}
		wasReady = ready
		if !ok {
			last, quiet = nil, 0
			continue
		}
		b.add(last, node, v.Revision, quiet)
		switch isQuiet := facts.IsUnreachable(node) || facts.IsShuttingDown(node); {
		case !isQuiet:
			quiet = 0
		case quiet == 0:
			quiet = v.Revision
		}
		last = node
	}
	return b
}

// add records the boot that a revision of the Node shows, if it is a new one.
func (b *boots) add(last, node *corev1.Node, revision, quiet int64) {
	id := node.Status.NodeInfo.BootID
	if n := len(b.list); last != nil && last.UID == node.UID && n > 0 {
		switch known := &b.list[n-1]; {
		case known.id == id, id == "":
			return
		case known.id == "": // the first boot ID that the kubelet reports
			known.id = id
			return
		}
	}
	next := boot{uid: node.UID, id: id, from: revision, after: revision - 1}
	if last != nil && last.UID == node.UID {
		next.since = b.h.Earliest(revision)
		if quiet > 0 {
			next.after = quiet
		}
		next.before = b.known(next.after, quiet > 0)
	}
	b.list = append(b.list, next)
}

// known returns the pods of a state: the ready ones or, if the node was unreachable,
// all of them, because the control plane had marked them unready by then.
func (b *boots) known(revision int64, all bool) map[string]bool {
	known := make(map[string]bool)
	for _, pod := range b.h.Moment(revision).Pods(b.name) {
		if ready, _ := facts.IsReady(pod); ready || all {
			known[incarnation(pod)] = true
		}
	}
	return known
}

// current returns the boot of a version of the Node.
func (b *boots) current(node *corev1.Node) boot {
	for _, known := range slices.Backward(b.list) {
		if known.uid == node.UID && (known.id == node.Status.NodeInfo.BootID || node.Status.NodeInfo.BootID == "") {
			return known
		}
	}
	return boot{}
}

// incarnation returns the identity of a pod and its containers.
func incarnation(pod *corev1.Pod) string {
	var ids []string
	for i := range pod.Status.ContainerStatuses {
		ids = append(ids, pod.Status.ContainerStatuses[i].ContainerID)
	}
	slices.Sort(ids)
	return string(pod.UID) + " " + strings.Join(ids, " ")
}

// notReady returns why the pod's Ready condition does not count as evidence, or "" if
// it does.
func (l evaluator) notReady(pod *corev1.Pod, wait time.Duration) string {
	ready, since := facts.IsReady(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		return "is terminating"
	case !ready:
		return "is not ready"
	}
	if from, stale := l.stale(pod); stale {
		proven := from.Add(provenAfter)
		switch {
		case facts.ReadyStatus(l.node) != corev1.ConditionTrue:
			return "is known from before the current boot or Node, and the node is not Ready"
		case l.now.Before(proven):
			return "is known only from before the current boot or Node"
		}
		since = revisions.Later(since, proven)
	}
	if wait > 0 && l.now.Before(revisions.Later(since, pod.CreationTimestamp.Time).Add(wait)) {
		return "has not been ready for long enough"
	}
	return ""
}

// stale reports whether the pod is known from before the current boot or the current
// Node. If so, from is the time since which the kubelet could have corrected its
// status: the later of the boot and the node becoming Ready.
func (l evaluator) stale(pod *corev1.Pod) (from time.Time, stale bool) {
	if l.boots == nil {
		return time.Time{}, false
	}
	current := l.boots.current(l.node)
	switch {
	case current.before[incarnation(pod)]:
		from = current.since
	case pod.CreationTimestamp.Before(&l.node.CreationTimestamp):
		from = l.node.CreationTimestamp.Time
	default:
		return time.Time{}, false
	}
	return revisions.Later(from, l.boots.readySince(l.Revision)), true
}

// readySince returns the earliest time at which the node can have become Ready, if it
// has been Ready since then. Like times in the API, it is truncated to seconds.
func (b *boots) readySince(revision int64) time.Time {
	i := sort.Search(len(b.becameReady), func(i int) bool { return b.becameReady[i] > revision })
	if i == 0 {
		return time.Time{}
	}
	return b.h.Earliest(b.becameReady[i-1]).Truncate(time.Second)
}

// notMarked returns why the annotation that makes the pod ready does not count as
// evidence, or "" if it does. No kubelet corrects an annotation, so it must have been
// written in this boot and on this Node.
func (l evaluator) notMarked(pod *corev1.Pod, key string, wait time.Duration) string {
	if pod.DeletionTimestamp != nil {
		return "is terminating"
	}
	if pod.Annotations[key] != "true" {
		return "is not annotated as ready"
	}
	written := l.markedAt(pod, key)
	if l.boots != nil {
		current := l.boots.current(l.node)
		if current.before != nil && written <= current.after || written < l.createdAt(l.node) {
			return "carries an annotation from before the current boot or Node"
		}
	}
	if wait > 0 && l.now.Before(l.Earliest(written).Add(wait)) {
		return "has not been annotated for long enough"
	}
	return ""
}

// markedAt returns the revision since which the pod has carried the annotation.
func (l evaluator) markedAt(pod *corev1.Pod, key string) int64 {
	at, marked := int64(0), false
	for _, v := range l.VersionsOf(revisions.ID{Kind: revisions.KindPod, Namespace: pod.Namespace, Name: pod.Name}) {
		if v.Revision > l.Revision {
			break
		}
		was := marked
		p, ok := v.Object.(*corev1.Pod)
		if marked = ok && p.UID == pod.UID && p.Annotations[key] == "true"; marked && !was {
			at = v.Revision
		}
	}
	return at
}

// createdAt returns the revision that created the Node.
func (l evaluator) createdAt(node *corev1.Node) int64 {
	v, _ := l.At(revisions.ID{Kind: revisions.KindNode, Name: node.Name}, l.Revision)
	return v.Created
}
