// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"slices"
	"strconv"
	"sync/atomic"
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
	// Index returns the number of the Node with a name. If it is nil, single Nodes cannot be
	// read or patched.
	Index func(name string) (int, bool)
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
// bookmark, heartbeats. Those of changes are larger, and heartbeats after a change have its
// version.
const (
	firstVersion    = 1
	bookmarkVersion = 1_000_000_000
	firstChange     = 2_000_000_000
)

// object is a Node or a Pod.
type object interface {
	runtime.Object
	metav1.Object
}

// A collection is the set of objects of one watch.
type collection struct {
	count int
	// object returns the i-th object, or nil if it does not exist.
	object func(i int) object
	// includes reports whether a change concerns an object of the collection.
	includes func(daemon int) bool
	// bookmark returns an empty object of the same kind, at a number of changes.
	bookmark func(m metav1.ObjectMeta, position int) object
	// position is the number of changes that the collection includes.
	position int
	// heartbeats is the number of Nodes that report each second; nil for pods.
	heartbeats *atomic.Int64
}

func (s *Server) nodes() collection {
	position, joined := s.changes.state()
	return collection{
		count: s.fleet.Nodes + joined, position: position, heartbeats: &s.heartbeats,
		object: func(i int) object {
			if n := s.node(i); n != nil {
				return n
			}
			return nil
		},
		includes: func(daemon int) bool { return daemon == noDaemon },
		bookmark: func(m metav1.ObjectMeta, position int) object {
			return version(&corev1.Node{ObjectMeta: m}, "Node", versionAt(position))
		},
	}
}

// pods returns the pods that a selector selects, ordered by Node, then by daemon.
func (s *Server) pods(selector labels.Selector) collection {
	position, joined := s.changes.state()
	var daemons []int
	for i, d := range s.fleet.Daemons {
		if selector.Matches(d.Labels) {
			daemons = append(daemons, i)
		}
	}
	return collection{
		count: (s.fleet.Nodes + joined) * len(daemons), position: position,
		object: func(i int) object {
			if p := s.pod(daemons[i%len(daemons)], i/len(daemons)); p != nil {
				return p
			}
			return nil
		},
		includes: func(daemon int) bool { return slices.Contains(daemons, daemon) },
		bookmark: func(m metav1.ObjectMeta, position int) object {
			return version(&corev1.Pod{ObjectMeta: m}, "Pod", versionAt(position))
		},
	}
}

// versionAt returns the resource version of the state after a number of changes.
func versionAt(position int) int {
	if position == 0 {
		return bookmarkVersion
	}
	return firstChange + position - 1
}

// heartbeat returns the i-th Node after a report of its kubelet.
func (s *Server) heartbeat(i, sent int, now time.Time) object {
	at := bookmarkVersion + 1 + sent
	if position, _ := s.changes.state(); position > 0 {
		at = versionAt(position)
	}
	node := s.node(i)
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
