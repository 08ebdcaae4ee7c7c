// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// A Fleet specifies the simulated objects. Its functions are called concurrently and must
// return equal objects for equal arguments. Callers modify only the top level of a
// returned object, so anything below may be shared.
type Fleet struct {
	// Nodes is the number of Nodes. Node returns the i-th.
	Nodes int
	Node  func(i int) *corev1.Node
	// Namespace is the namespace of the pods. It contains no other pods.
	Namespace string
	Daemons   []Daemon
	// Heartbeats is the number of Nodes that report each second, in each watch that has
	// received all initial events.
	Heartbeats int
}

// A Daemon has one pod on each Node.
type Daemon struct {
	// Labels are the labels of its pods, for selectors.
	Labels labels.Set
	// Pod returns the pod on the i-th Node.
	Pod func(i int) *corev1.Pod
}

// Resource versions increase in the order in which objects are sent: initial events, the
// bookmark, heartbeats.
const (
	firstVersion    = 1
	bookmarkVersion = 1_000_000_000
)

// object is a Node or a Pod.
type object interface {
	runtime.Object
	metav1.Object
}

// A collection is the set of objects of one watch.
type collection struct {
	count  int
	object func(i int) object
	// bookmark returns an empty object of the same kind.
	bookmark func(metav1.ObjectMeta) object
}

func (f *Fleet) nodes() collection {
	return collection{
		count:    f.Nodes,
		object:   func(i int) object { return version(f.Node(i), "Node", firstVersion+i) },
		bookmark: func(m metav1.ObjectMeta) object { return version(&corev1.Node{ObjectMeta: m}, "Node", bookmarkVersion) },
	}
}

// pods returns the pods that a selector selects, ordered by Node, then by daemon.
func (f *Fleet) pods(selector labels.Selector) collection {
	var daemons []Daemon
	for _, d := range f.Daemons {
		if selector.Matches(d.Labels) {
			daemons = append(daemons, d)
		}
	}
	return collection{
		count: f.Nodes * len(daemons),
		object: func(i int) object {
			return version(daemons[i%len(daemons)].Pod(i/len(daemons)), "Pod", firstVersion+i)
		},
		bookmark: func(m metav1.ObjectMeta) object { return version(&corev1.Pod{ObjectMeta: m}, "Pod", bookmarkVersion) },
	}
}

// heartbeat returns the i-th Node after a report of its kubelet.
func (f *Fleet) heartbeat(i, at int, now time.Time) object {
	node := f.Node(i)
	conditions := make([]corev1.NodeCondition, len(node.Status.Conditions))
	copy(conditions, node.Status.Conditions)
	for c := range conditions {
		conditions[c].LastHeartbeatTime = metav1.NewTime(now)
	}
	node.Status.Conditions = conditions
	return version(node, "Node", at)
}

// version sets an object's kind, which protobuf requires, and its resource version.
func version(o object, kind string, at int) object {
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	o.SetResourceVersion(strconv.Itoa(at))
	return o
}
