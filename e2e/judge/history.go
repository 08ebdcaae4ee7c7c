// SPDX-License-Identifier: Apache-2.0

package judge

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

// NewHistory returns the history of these versions and writes, which may be in any
// order.
func NewHistory(from, to int64, end time.Time, versions []Version, writes []Write) *History {
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

// at returns the version of the object that was current at a revision.
func (h *History) at(id ID, revision int64) (Version, bool) {
	versions := h.byID[id]
	i := sort.Search(len(versions), func(i int) bool { return versions[i].Revision > revision })
	if i == 0 || versions[i-1].Object == nil {
		return Version{}, false
	}
	return versions[i-1], true
}

// moment is the state at one revision.
type moment struct {
	*History
	revision int64
	// declared replaces the gate with this name, unless the name is empty; nil means
	// that the gate does not exist.
	name     string
	declared *v1alpha1.NodeGate
}

func (h *History) moment(revision int64) moment { return moment{History: h, revision: revision} }

// declaring returns the moment with the named gate replaced by ng; nil means that the
// gate does not exist.
func (m moment) declaring(name string, ng *v1alpha1.NodeGate) moment {
	m.name, m.declared = name, ng
	return m
}

// node returns the Node, or nil.
func (m moment) node(name string) *corev1.Node {
	v, _ := m.at(ID{Kind: KindNode, Name: name}, m.revision)
	node, _ := v.Object.(*corev1.Node)
	return node
}

// allNodes returns all Nodes, sorted by name.
func (m moment) allNodes() []*corev1.Node { return all[*corev1.Node](m, KindNode) }

// gates returns all NodeGates, sorted by name.
func (m moment) gates() []*v1alpha1.NodeGate { return all[*v1alpha1.NodeGate](m, KindNodeGate) }

// gate returns the NodeGate, or nil.
func (m moment) gate(name string) *v1alpha1.NodeGate {
	if name == m.name {
		return m.declared
	}
	v, _ := m.at(ID{Kind: KindNodeGate, Name: name}, m.revision)
	ng, _ := v.Object.(*v1alpha1.NodeGate)
	return ng
}

// daemonSets returns all DaemonSets, sorted by namespace and name.
func (m moment) daemonSets() []*appsv1.DaemonSet { return all[*appsv1.DaemonSet](m, KindDaemonSet) }

// csiNode returns the CSINode, or nil.
func (m moment) csiNode(name string) *storagev1.CSINode {
	v, _ := m.at(ID{Kind: KindCSINode, Name: name}, m.revision)
	csi, _ := v.Object.(*storagev1.CSINode)
	return csi
}

// pods returns the pods that are bound to a node.
func (m moment) pods(node string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, id := range m.podsOf[node] {
		v, _ := m.at(id, m.revision)
		if pod, ok := v.Object.(*corev1.Pod); ok && pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// resourceSlices returns the ResourceSlices that name a node.
func (m moment) resourceSlices(node string) []*resourcev1.ResourceSlice {
	var found []*resourcev1.ResourceSlice
	for _, id := range m.slicesOf[node] {
		v, _ := m.at(id, m.revision)
		if slice, ok := v.Object.(*resourcev1.ResourceSlice); ok {
			found = append(found, slice)
		}
	}
	return found
}

// exists reports whether an object of this kind and name exists.
func (m moment) exists(kind Kind, name string) bool {
	_, found := m.at(ID{Kind: kind, Name: name}, m.revision)
	return found
}

func all[T metav1.Object](m moment, kind Kind) []T {
	var objects []T
	for _, id := range m.names[kind] {
		if v, found := m.at(id, m.revision); found {
			if object, ok := v.Object.(T); ok {
				objects = append(objects, object)
			}
		}
	}
	return objects
}
