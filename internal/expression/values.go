// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/nodegate/nodegate/internal/gate"
)

// Values are converted lazily: variables are resolved one by one, and their contents
// are wrapped when an expression accesses them.

// node resolves the variables of an expression.
type node struct {
	*gate.Node
	// own contains the keys of the gate's own taints, which are hidden from the
	// expression.
	own []string
}

var _ cel.Activation = node{}

// Parent implements cel.Activation.
func (node) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (n node) ResolveName(name string) (any, bool) {
	switch name {
	case labelsVariable:
		return map[string]string(n.Labels), true
	case annotationsVariable:
		return n.Annotations, true
	case conditionsVariable:
		return n.Conditions, true
	case taintsVariable:
		return n.foreignTaints(), true
	case allocatableVariable:
		return n.Allocatable, true
	case nodeInfoVariable:
		return info(n.Info), true
	case createdVariable:
		return types.Timestamp{Time: n.Created}, true
	}
	return nil, false
}

// foreignTaints returns all taints except those with a key of the gate's own, whatever
// their effect. A gate that depended on its own taint would never open, or would oscillate.
func (n node) foreignTaints() []corev1.Taint {
	isOwn := func(t corev1.Taint) bool { return slices.Contains(n.own, t.Key) }
	if !slices.ContainsFunc(n.Taints, isOwn) {
		return n.Taints
	}
	return slices.DeleteFunc(slices.Clone(n.Taints), isOwn)
}

// info contains the nodeInfo fields that are stored for the node.
type info map[string]string

// adapter converts facts and the contents of objects to CEL values.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a *adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case []gate.Condition:
		return listOf(a, v, conditionType, conditionFields)
	case []corev1.Taint:
		return listOf(a, v, taintType, taintFields)
	case map[string]string:
		return orderedMap{types.NewStringStringMap(a, v)}
	case map[string]resource.Quantity:
		return types.NewDynamicMap(a, v) // its keys must be literals, so no loop reads it
	case map[string]any:
		return orderedMap{types.NewStringInterfaceMap(a, v)}
	case []any: // its elements may be maps
		return types.NewDynamicList(a, v)
	case info:
		return &record[info]{value: &v, of: nodeInfoType, fields: infoFields}
	case resource.Quantity:
		return apiservercel.Quantity{Quantity: &v}
	}
	return a.Adapter.NativeToValue(value)
}

// listOf returns a list of records. It creates all of them at once; otherwise, each
// would be created again for every access.
func listOf[T any](a types.Adapter, values []T, of *types.Type, fields map[string]field[T]) ref.Val {
	records, elements := make([]record[T], len(values)), make([]ref.Val, len(values))
	for i := range values {
		records[i] = record[T]{value: &values[i], of: of, fields: fields}
		elements[i] = &records[i]
	}
	return types.NewRefValList(a, elements)
}

// field is a field of a record. get returns nil if the field is not set.
type field[T any] struct {
	of  *apiservercel.DeclType
	get func(*T) ref.Val
}

func fieldsOf[T any](fields map[string]field[T]) map[string]*apiservercel.DeclType {
	all := make(map[string]*apiservercel.DeclType, len(fields))
	for name, f := range fields {
		all[name] = f.of
	}
	return all
}

var (
	conditionType = types.NewObjectType(conditionName, traits.FieldTesterType|traits.IndexerType)
	taintType     = types.NewObjectType(taintName, traits.FieldTesterType|traits.IndexerType)
	nodeInfoType  = types.NewObjectType(nodeInfoName, traits.FieldTesterType|traits.IndexerType)
)

// Heartbeats are not available as a field, because they change continuously.
var conditionFields = map[string]field[gate.Condition]{
	"type":               {apiservercel.StringType, func(c *gate.Condition) ref.Val { return types.String(c.Type) }},
	"status":             {apiservercel.StringType, func(c *gate.Condition) ref.Val { return types.String(c.Status) }},
	"lastTransitionTime": {apiservercel.TimestampType, func(c *gate.Condition) ref.Val { return instant(c.Transition) }},
}

var taintFields = map[string]field[corev1.Taint]{
	"key":    {apiservercel.StringType, func(t *corev1.Taint) ref.Val { return types.String(t.Key) }},
	"value":  {apiservercel.StringType, func(t *corev1.Taint) ref.Val { return types.String(t.Value) }},
	"effect": {apiservercel.StringType, func(t *corev1.Taint) ref.Val { return types.String(t.Effect) }},
	"timeAdded": {apiservercel.TimestampType, func(t *corev1.Taint) ref.Val {
		if t.TimeAdded == nil {
			return nil
		}
		return instant(t.TimeAdded.UTC())
	}},
}

var infoFields = func() map[string]field[info] {
	all := make(map[string]field[info], len(nodeInfoFields))
	for _, name := range nodeInfoFields {
		all[name] = field[info]{apiservercel.StringType, func(i *info) ref.Val {
			if (*i)[name] == "" {
				return nil
			}
			return types.String((*i)[name])
		}}
	}
	return all
}()

func instant(t time.Time) ref.Val {
	if t.IsZero() {
		return nil
	}
	return types.Timestamp{Time: t}
}

// record is a value with fields. Reading a field that is not set is an error, like
// reading an absent key of a map. has() reports whether it is set.
type record[T any] struct {
	value  *T
	of     *types.Type
	fields map[string]field[T]
}

var (
	_ traits.Indexer     = &record[info]{}
	_ traits.FieldTester = &record[info]{}
)

// Get implements traits.Indexer.
func (r *record[T]) Get(name ref.Val) ref.Val {
	if v := r.field(name); v != nil {
		return v
	}
	return types.NewErr("no such field: %v", name)
}

// IsSet implements traits.FieldTester.
func (r *record[T]) IsSet(name ref.Val) ref.Val { return types.Bool(r.field(name) != nil) }

func (r *record[T]) field(name ref.Val) ref.Val {
	text, _ := name.(types.String)
	if f, known := r.fields[string(text)]; known {
		return f.get(r.value)
	}
	return nil
}

// ConvertToNative implements ref.Val.
func (r *record[T]) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("converting %s to %s: not possible", r.of, to)
}

// ConvertToType implements ref.Val.
func (r *record[T]) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case r.of:
		return r
	case types.TypeType:
		return r.of
	}
	return types.NewErr("type conversion error from '%s' to '%s'", r.of, to)
}

// Equal implements ref.Val.
func (r *record[T]) Equal(other ref.Val) ref.Val {
	o, same := other.(*record[T])
	if !same {
		return types.False
	}
	for _, f := range r.fields {
		a, b := f.get(r.value), f.get(o.value)
		if (a == nil) != (b == nil) || a != nil && a.Equal(b) != types.True {
			return types.False
		}
	}
	return types.True
}

// Type implements ref.Val.
func (r *record[T]) Type() ref.Type { return r.of }

// Value implements ref.Val.
func (r *record[T]) Value() any { return *r.value }
