// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Kind is the kind of an object that the judge reads.
type Kind string

// The kinds that the judge reads.
const (
	KindNode    Kind = "Node"
	KindPod     Kind = "Pod"
	KindCSINode Kind = "CSINode"
	// KindResourceSlice is needed only by resourceSlices signals.
	KindResourceSlice Kind = "ResourceSlice"
	KindDaemonSet     Kind = "DaemonSet"
	KindNodeGate      Kind = "NodeGate"
	// KindPolicy is a MutatingAdmissionPolicy, and KindBinding its binding.
	KindPolicy  Kind = "MutatingAdmissionPolicy"
	KindBinding Kind = "MutatingAdmissionPolicyBinding"
)

// ID identifies an object.
type ID struct {
	Kind            Kind
	Namespace, Name string
}

// Version is the version of an object at one revision.
type Version struct {
	ID
	// Revision is the etcd revision, which is also the object's resourceVersion.
	Revision int64
	// Created is the revision that created the object.
	Created int64
	// Object is nil if the revision deleted the object. It must not be modified.
	Object metav1.Object
}

// Write is a request in the audit log that was answered with a revision.
type Write struct {
	Revision int64
	// User is the name of the user that sent the request.
	User string
	// AuditID is the request's ID in the audit log.
	AuditID string
	// Verb is the request's verb, with the subresource: "patch", "update status".
	Verb string
	// NoRecords is true if the request mentions no record annotation. Such a request
	// cannot have changed a record.
	NoRecords bool
	// Sent is the Node in a request that created one, without its status.
	Sent *corev1.Node
	// Received and Done are the times at which the API server received the request and
	// had answered it. The revision was committed in between.
	Received, Done time.Time
}

// History is the content of etcd at each revision of a run, with the requests that
// wrote it.
type History struct {
	// From is the first revision. Objects that existed before it are known only in the
	// version that was current then.
	From int64
	// To is the last revision.
	To int64
	// End is the time at which the history was read. Nothing was written between To and
	// End.
	End time.Time
	// Requests are the writes in the audit log that show whether nodes and nodegate can work.
	Requests []Request

	byID map[ID][]Version
	// names are the IDs of each kind, sorted.
	names map[Kind][]ID
	// podsOf are the pods that were bound to a node at any time, by node name.
	podsOf map[string][]ID
	// slicesOf are the ResourceSlices that named a node at any time, by node name.
	slicesOf map[string][]ID
	// nodes are all versions of all Nodes, sorted by revision.
	nodes []Version
	// writes are the requests that were answered with a revision, sorted by the time
	// of the response.
	writes map[int64][]Write
	clock  clock
}

// New returns the history of these versions and writes, which may be in any
// order.
func New(from, to int64, end time.Time, versions []Version, writes []Write) *History {
	h := &History{
		From: from, To: to, End: end,
		byID: make(map[ID][]Version), names: make(map[Kind][]ID), podsOf: make(map[string][]ID), slicesOf: make(map[string][]ID), writes: make(map[int64][]Write),
	}
	slices.SortStableFunc(versions, func(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, v := range versions {
		h.add(v)
	}
	for kind := range h.names {
		slices.SortFunc(h.names[kind], func(a, b ID) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
	}
	for _, w := range writes {
		h.writes[w.Revision] = append(h.writes[w.Revision], w)
	}
	for _, answered := range h.writes {
		slices.SortStableFunc(answered, func(a, b Write) int { return a.Done.Compare(b.Done) })
	}
	h.clock = newClock(writes, from, to, end)
	return h
}

func (h *History) add(v Version) {
	known := h.byID[v.ID]
	if len(known) == 0 {
		h.names[v.Kind] = append(h.names[v.Kind], v.ID)
	}
	h.byID[v.ID] = append(known, v)
	if v.Kind == KindNode {
		h.nodes = append(h.nodes, v)
	}
	switch o := v.Object.(type) {
	case *corev1.Pod:
		addTo(h.podsOf, o.Spec.NodeName, v.ID)
	case *resourcev1.ResourceSlice:
		addTo(h.slicesOf, ptr.Deref(o.Spec.NodeName, ""), v.ID)
	}
}

func addTo(byNode map[string][]ID, node string, id ID) {
	if node != "" && !slices.Contains(byNode[node], id) {
		byNode[node] = append(byNode[node], id)
	}
}

// Write returns the first request in the audit log that was answered with a revision.
// Requests that change nothing are answered with the revision of the previous write,
// usually after it.
func (h *History) Write(revision int64) (Write, bool) {
	answered := h.writes[revision]
	if len(answered) == 0 {
		return Write{}, false
	}
	return answered[0], true
}

// Versions returns the versions of each object of a kind, in the order of the objects'
// names.
func (h *History) Versions(kind Kind) [][]Version {
	var all [][]Version
	for _, id := range h.names[kind] {
		all = append(all, h.byID[id])
	}
	return all
}

// VersionsOf returns the versions of an object, sorted by revision.
func (h *History) VersionsOf(id ID) []Version { return h.byID[id] }

// Names returns the IDs of the objects of a kind, sorted.
func (h *History) Names(kind Kind) []ID { return h.names[kind] }

// Nodes returns the versions of all Nodes, sorted by revision.
func (h *History) Nodes() []Version { return h.nodes }

// PodsOf returns the pods that were bound to a node at any time.
func (h *History) PodsOf(node string) []ID { return h.podsOf[node] }

// Writes returns the requests that were answered with a revision, sorted by the time of the
// response.
func (h *History) Writes(revision int64) []Write { return h.writes[revision] }

// Earliest returns the earliest time at which the revision can have been committed; zero if it
// is unknown.
func (h *History) Earliest(revision int64) time.Time { return h.clock.earliest(revision) }

// Latest returns the latest time at which the revision can have been committed.
func (h *History) Latest(revision int64) time.Time { return h.clock.latest(revision) }

// At returns the version of the object that was current at a revision.
func (h *History) At(id ID, revision int64) (Version, bool) {
	versions := h.byID[id]
	i := sort.Search(len(versions), func(i int) bool { return versions[i].Revision > revision })
	if i == 0 || versions[i-1].Object == nil {
		return Version{}, false
	}
	return versions[i-1], true
}

// Relevant returns the revisions below before that were current at some time after
// since, newest first. It returns only revisions of the node and of the objects that
// gates on it may depend on.
func (h *History) Relevant(node string, since time.Time, before int64) []int64 {
	revisions := []int64{before - 1}
	add := func(id ID) {
		versions := h.byID[id]
		for i := sort.Search(len(versions), func(i int) bool { return versions[i].Revision >= before }) - 1; i >= 0; i-- {
			revisions = append(revisions, versions[i].Revision)
			if h.Latest(versions[i].Revision).Before(since) {
				break // current at that time; earlier versions were not
			}
			// The version that it replaced was current until then.
			revisions = append(revisions, versions[i].Revision-1)
		}
	}
	add(ID{Kind: KindNode, Name: node})
	add(ID{Kind: KindCSINode, Name: node})
	for _, id := range slices.Concat(h.podsOf[node], h.slicesOf[node]) {
		add(id)
	}
	for _, kind := range []Kind{KindDaemonSet, KindNodeGate} {
		for _, id := range h.names[kind] {
			add(id)
		}
	}
	slices.Sort(revisions)
	revisions = slices.Compact(revisions)
	// The state of a revision is current until the next one is committed.
	first := 0
	for i := range revisions[:len(revisions)-1] {
		if h.Latest(revisions[i+1]).Before(since) {
			first = i + 1
		}
	}
	revisions = slices.DeleteFunc(revisions[first:], func(r int64) bool { return r < h.From })
	slices.Reverse(revisions)
	return revisions
}

// States returns the states of a Node that were current at some time between a time and a
// revision. It contains nil if the Node may not have existed then.
func (h *History) States(name string, since time.Time, before int64) []*corev1.Node {
	versions := h.byID[ID{Kind: KindNode, Name: name}]
	var states []*corev1.Node
	for i := sort.Search(len(versions), func(i int) bool { return versions[i].Revision >= before }) - 1; i >= 0; i-- {
		node, _ := versions[i].Object.(*corev1.Node)
		states = append(states, node)
		if h.Latest(versions[i].Revision).Before(since) {
			return states
		}
	}
	return append(states, nil)
}

// Moment is the state at one revision.
type Moment struct {
	*History
	Revision int64
	// declared replaces the gate with this name, unless the name is empty; nil means
	// that the gate does not exist.
	name     string
	declared *v1alpha1.NodeGate
}

// Moment returns the state at a revision.
func (h *History) Moment(revision int64) Moment { return Moment{History: h, Revision: revision} }

// Declaring returns the Moment with the named gate replaced by ng; nil means that the
// gate does not exist.
func (m Moment) Declaring(name string, ng *v1alpha1.NodeGate) Moment {
	m.name, m.declared = name, ng
	return m
}

// Node returns the Node, or nil.
func (m Moment) Node(name string) *corev1.Node {
	v, _ := m.At(ID{Kind: KindNode, Name: name}, m.Revision)
	node, _ := v.Object.(*corev1.Node)
	return node
}

// AllNodes returns all Nodes, sorted by name.
func (m Moment) AllNodes() []*corev1.Node { return all[*corev1.Node](m, KindNode) }

// Gates returns all NodeGates, sorted by name.
func (m Moment) Gates() []*v1alpha1.NodeGate { return all[*v1alpha1.NodeGate](m, KindNodeGate) }

// Gate returns the NodeGate, or nil.
func (m Moment) Gate(name string) *v1alpha1.NodeGate {
	if name == m.name {
		return m.declared
	}
	v, _ := m.At(ID{Kind: KindNodeGate, Name: name}, m.Revision)
	ng, _ := v.Object.(*v1alpha1.NodeGate)
	return ng
}

// DaemonSets returns all DaemonSets, sorted by namespace and name.
func (m Moment) DaemonSets() []*appsv1.DaemonSet { return all[*appsv1.DaemonSet](m, KindDaemonSet) }

// CsiNode returns the CSINode, or nil.
func (m Moment) CsiNode(name string) *storagev1.CSINode {
	v, _ := m.At(ID{Kind: KindCSINode, Name: name}, m.Revision)
	csi, _ := v.Object.(*storagev1.CSINode)
	return csi
}

// Pods returns the pods that are bound to a node.
func (m Moment) Pods(node string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, id := range m.podsOf[node] {
		v, _ := m.At(id, m.Revision)
		if pod, ok := v.Object.(*corev1.Pod); ok && pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// ResourceSlices returns the ResourceSlices that name a node.
func (m Moment) ResourceSlices(node string) []*resourcev1.ResourceSlice {
	var found []*resourcev1.ResourceSlice
	for _, id := range m.slicesOf[node] {
		v, _ := m.At(id, m.Revision)
		if slice, ok := v.Object.(*resourcev1.ResourceSlice); ok {
			found = append(found, slice)
		}
	}
	return found
}

// Exists reports whether an object of this kind and name exists.
func (m Moment) Exists(kind Kind, name string) bool {
	_, found := m.At(ID{Kind: kind, Name: name}, m.Revision)
	return found
}

func all[T metav1.Object](m Moment, kind Kind) []T {
	var objects []T
	for _, id := range m.names[kind] {
		if v, found := m.At(id, m.Revision); found {
			if object, ok := v.Object.(T); ok {
				objects = append(objects, object)
			}
		}
	}
	return objects
}
