// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// A Fleet specifies what is replayed. Its functions are called from several
// goroutines and must return equal objects for equal numbers. The caller may
// change an object only at its top level: everything below may be shared.
type Fleet struct {
	// Nodes is how many there are, and Node makes one of them.
	Nodes int
	Node  func(i int) *corev1.Node
	// Namespace is the namespace of the pods. It contains no other pods.
	Namespace string
	Daemons   []Daemon
	// Heartbeats is how many of the Nodes report each second to each watch, once
	// it has seen them all.
	Heartbeats int
}

// A Daemon has one pod on each Node.
type Daemon struct {
	// Labels are those of its pods, by which they are selected.
	Labels labels.Set
	// Pod makes the one on Node number i.
	Pod func(i int) *corev1.Pod
}

// Resource versions grow in the order of what is sent: the fleet's objects first,
// then a bookmark, then heartbeats.
const (
	firstVersion    = 1
	bookmarkVersion = 1_000_000_000
)

// object is a Node or a Pod.
type object interface {
	runtime.Object
	metav1.Object
}

// A collection is what one list or watch is about.
type collection struct {
	kind  string
	count int
	make  func(i int) object
	list  func(items []object) runtime.Object
}

func (f *Fleet) nodes() collection {
	return collection{
		kind: "Node", count: f.Nodes,
		make: func(i int) object { return version(f.Node(i), "Node", firstVersion+i) },
		list: func(items []object) runtime.Object {
			all := &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
			for _, o := range items {
				all.Items = append(all.Items, *o.(*corev1.Node))
			}
			return all
		},
	}
}

// pods are those that a label selector selects, by Node and then by daemon.
func (f *Fleet) pods(selector labels.Selector) collection {
	var daemons []Daemon
	for _, d := range f.Daemons {
		if selector.Matches(d.Labels) {
			daemons = append(daemons, d)
		}
	}
	return collection{
		kind: "Pod", count: f.Nodes * len(daemons),
		make: func(i int) object {
			return version(daemons[i%len(daemons)].Pod(i/len(daemons)), "Pod", firstVersion+i)
		},
		list: func(items []object) runtime.Object {
			all := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
			for _, o := range items {
				all.Items = append(all.Items, *o.(*corev1.Pod))
			}
			return all
		},
	}
}

// heartbeat makes Node number i as it is after its kubelet has just reported.
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

// version says what kind an object is, which protobuf asks for, and how new it is.
func version(o object, kind string, at int) object {
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	o.SetResourceVersion(strconv.Itoa(at))
	return o
}
