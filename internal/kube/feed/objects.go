// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Objects stores what the queries of one source need to know about its objects. The
// expressions are evaluated when an object arrives, so that the object is not stored.
type Objects struct {
	nodes *nodestore.Store
	views []*objectView
}

// objectErrorMax is the maximum length of a stored error, which may quote the object.
const objectErrorMax = 512

// objectView has the results of one query by node.
type objectView struct {
	query gate.ObjectQuery
	// compiled is nil if err is set, which is then the result for every object.
	compiled *expression.ObjectExpression
	err      error
	path     []string
	// changed is called, without locks, with the name of a node whose objects have
	// changed.
	changed func(node string)

	mu sync.RWMutex
	// byNode has the objects of each node, sorted by name. The lists are immutable,
	// because decisions share them. nodeOf has the node of each object.
	byNode map[string][]gate.Object
	nodeOf map[string]string
}

// ObjectFact is what is known about an object: for each view, its node and the result.
type ObjectFact struct {
	name  string
	nodes []string
	facts []gate.Object
}

var _ reflector.Sink[*ObjectFact] = (*Objects)(nil)

// NewObjects returns an empty Objects for queries of one source. changed returns the
// function to call when the objects of a node have changed that a query finds.
func NewObjects(nodes *nodestore.Store, queries []gate.ObjectQuery, changed func(gate.ObjectQuery) func(node string)) *Objects {
	s := &Objects{nodes: nodes}
	for _, query := range queries {
		v := &objectView{query: query, changed: changed(query), byNode: make(map[string][]gate.Object), nodeOf: make(map[string]string)}
		v.compiled, v.err = expression.CompileObject(query.Expression)
		if query.NodeBy == v1alpha1.NodeByField {
			v.path = fieldPath(query.NodeKey)
		}
		s.views = append(s.views, v)
	}
	return s
}

// MetadataOnly reports whether the queries need nothing but the metadata of objects.
func (s *Objects) MetadataOnly() bool {
	for _, v := range s.views {
		if v.compiled != nil && !v.compiled.MetadataOnly() || len(v.path) > 0 && v.path[0] != "metadata" {
			return false
		}
	}
	return true
}

// On returns the objects of a node that a query finds.
func (s *Objects) On(node string, query gate.ObjectQuery) []gate.Object {
	for _, v := range s.views {
		if v.query == query {
			v.mu.RLock()
			defer v.mu.RUnlock()
			return v.byNode[node]
		}
	}
	return nil
}

// Convert returns the facts about an object.
func (s *Objects) Convert(o runtime.Object) *ObjectFact {
	m, err := meta.Accessor(o)
	if err != nil {
		return &ObjectFact{} // impossible: both kinds of objects have metadata
	}
	f := &ObjectFact{name: objectName(m), nodes: make([]string, len(s.views)), facts: make([]gate.Object, len(s.views))}
	content := contentOf(o)
	for i, v := range s.views {
		node := v.nodeName(m, content)
		if node == "" || len(node) > validation.DNS1123SubdomainMaxLength { // no Node has such a name
			continue
		}
		f.nodes[i] = s.nodes.NameOf(node)
		if f.name == node {
			f.name = f.nodes[i] // shares memory
		}
		f.facts[i] = v.evaluate(content)
		f.facts[i].Name, f.facts[i].Error = f.name, s.nodes.Texts.Text(f.facts[i].Error)
		if owner := nodeOwner(m.GetOwnerReferences(), node); owner != nil {
			f.facts[i].Owner = s.nodes.Texts.UID(owner.UID)
		}
	}
	return f
}

func objectName(m metav1.Object) string {
	if m.GetNamespace() == "" {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}

// contentOf returns an object's fields.
func contentOf(o runtime.Object) map[string]any {
	if whole, ok := o.(*unstructured.Unstructured); ok {
		return whole.Object
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil // the expression will fail
	}
	return content
}

// nodeName returns the name of the node to which an object belongs, or "".
func (v *objectView) nodeName(m metav1.Object, content map[string]any) string {
	switch v.query.NodeBy {
	case v1alpha1.NodeByLabel:
		return m.GetLabels()[v.query.NodeKey]
	case v1alpha1.NodeByField:
		name, _, _ := unstructured.NestedString(content, v.path...)
		return name
	case v1alpha1.NodeByOwner:
		if owner := anyNodeOwner(m.GetOwnerReferences()); owner != nil {
			return owner.Name
		}
		return ""
	}
	return m.GetName()
}

func (v *objectView) evaluate(content map[string]any) gate.Object {
	err := v.err
	holds := false
	if err == nil {
		holds, err = v.compiled.Holds(content)
	}
	switch {
	case err != nil:
		return gate.Object{Error: gate.Clip(err.Error(), objectErrorMax)}
	case holds:
		return gate.Object{State: gate.Holds}
	}
	return gate.Object{State: gate.NotYet}
}

// Put implements reflector.Sink.
func (s *Objects) Put(f *ObjectFact) {
	for i, v := range s.views {
		v.put(f.name, f.nodes[i], f.facts[i])
	}
}

// Drop implements reflector.Sink.
func (s *Objects) Drop(f *ObjectFact) {
	for _, v := range s.views {
		v.put(f.name, "", gate.Object{})
	}
}

// Replace implements reflector.Sink. It does not call changed: while the objects are
// listed they count as unknown, and afterwards all nodes are evaluated.
func (s *Objects) Replace(all []*ObjectFact) {
	for i, v := range s.views {
		byNode, nodeOf := make(map[string][]gate.Object), make(map[string]string)
		for _, f := range all {
			if node := f.nodes[i]; node != "" {
				byNode[node] = append(byNode[node], f.facts[i])
				nodeOf[f.name] = node
			}
		}
		for _, list := range byNode {
			slices.SortFunc(list, byObjectName)
		}
		v.mu.Lock()
		v.byNode, v.nodeOf = byNode, nodeOf
		v.mu.Unlock()
	}
}

// put stores an object's result on a node. If node is empty, the object belongs to none.
func (v *objectView) put(name, node string, o gate.Object) {
	v.mu.Lock()
	before := v.nodeOf[name]
	var moved, changed bool
	if before != "" && before != node {
		moved = v.replace(before, name, nil)
		delete(v.nodeOf, name)
	}
	if node != "" {
		changed = v.replace(node, name, &o)
		v.nodeOf[name] = node
	}
	v.mu.Unlock()
	if moved {
		v.changed(before)
	}
	if changed {
		v.changed(node)
	}
}

// replace replaces an object in a node's list, or removes it if o is nil. It reports
// whether the list has changed.
func (v *objectView) replace(node, name string, o *gate.Object) bool {
	before := v.byNode[node]
	i, found := slices.BinarySearchFunc(before, gate.Object{Name: name}, byObjectName)
	after := slices.Clone(before)
	switch {
	case found && o != nil:
		after[i] = *o
	case found:
		after = slices.Delete(after, i, i+1)
	case o != nil:
		after = slices.Insert(after, i, *o)
	}
	if len(after) > 0 {
		v.byNode[node] = after
	} else {
		delete(v.byNode, node)
	}
	return !slices.Equal(before, after)
}

func byObjectName(a, b gate.Object) int { return cmp.Compare(a.Name, b.Name) }
