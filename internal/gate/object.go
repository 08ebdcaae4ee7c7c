// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// ObjectSource selects objects of one kind. Each source is watched once.
type ObjectSource struct {
	Group, Version, Kind string
	// Namespace is the namespace of the objects; empty for all namespaces, and if the
	// kind is cluster-scoped.
	Namespace string
	// Selector is a label selector in its canonical text form; empty for all objects.
	Selector string
}

// String returns the source for messages: KIND.VERSION.GROUP, with the namespace and
// selector, if any.
func (s ObjectSource) String() string {
	text := s.Kind + "." + s.Version
	if s.Group != "" {
		text += "." + s.Group
	}
	if s.Namespace != "" {
		text += " in " + s.Namespace
	}
	if s.Selector != "" {
		text += " (" + s.Selector + ")"
	}
	return text
}

// ObjectQuery finds the objects of a source that belong to a node, and what is to be
// known about them.
type ObjectQuery struct {
	ObjectSource
	// NodeBy specifies how the node of an object is determined. NodeKey is the key of the
	// label or the path of the field, if NodeBy requires one.
	NodeBy  v1alpha1.NodeBy
	NodeKey string
	// Expression is the CEL expression that is evaluated for the objects.
	Expression string
}

// Aspect returns the aspect of a node that consists of the query's objects.
func (q ObjectQuery) Aspect() Aspect {
	name := fmt.Sprintf("%q", []string{q.Group, q.Version, q.Kind, q.Namespace, q.Selector, string(q.NodeBy), q.NodeKey, q.Expression})
	return Aspect{Kind: AspectObjects, Name: name}
}

// CompareObjectQueries orders queries.
func CompareObjectQueries(a, b ObjectQuery) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.NodeBy, b.NodeBy),
		cmp.Compare(a.NodeKey, b.NodeKey), cmp.Compare(a.Expression, b.Expression),
	)
}

// Object is what is known about an object of a query. The object itself is not stored.
type Object struct {
	// Name is the name of the object, with its namespace if it has one.
	Name string
	// Owner is the UID of the Node that owns the object. Empty if there is none.
	Owner types.UID
	// State is the result of the expression: Holds for true, NotYet for false, and
	// Unknown if it could not be evaluated. Error then contains the reason.
	State State
	Error string
}
