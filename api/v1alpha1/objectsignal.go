// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "maps"

// ObjectSignal specifies objects of any kind that belong to a node, and what
// must be true of them.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeLabel) == (self.nodeBy == 'Label')",message="nodeLabel is required when nodeBy is Label, and must not be set otherwise",fieldPath=".nodeLabel"
// +kubebuilder:validation:XValidation:rule="has(self.nodeField) == (self.nodeBy == 'Field')",message="nodeField is required when nodeBy is Field, and must not be set otherwise",fieldPath=".nodeField"
// +kubebuilder:validation:XValidation:rule="!(((has(self.group) ? self.group + '/' : '/') + self.kind) in ['/Secret', '/Pod', '/Node', 'apps/DaemonSet', 'storage.k8s.io/CSINode', 'resource.k8s.io/ResourceSlice', 'resource.k8s.io/DeviceTaintRule', 'readiness.node.x-k8s.io/NodeReadinessRule', 'nodegate.dev/NodeGate'])",message="kind must not be Secret or a kind that nodegate reads for its own purposes, such as Pod or Node, because the results of expressions would reveal its content; use another signal, such as pods or condition, or another kind",fieldPath=".kind"
type ObjectSignal struct {
	// group is the API group of the objects. Empty means the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Subdomain().validate(self).hasValue()",message="group must be an API group, such as cilium.io; correct it"
	Group string `json:"group,omitempty"`

	// version is the version of the API group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1035Label().validate(self).hasValue()",message="version must be a version of the API group, such as v1; correct it"
	Version string `json:"version"`

	// kind is the kind of the objects. While the API server does not serve it, the
	// signal is unknown. nodegate must be allowed to list and watch the kind: add it
	// to the chart's value observe, or to --observe of 'nodegate manifests'.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z][A-Za-z0-9]*$')",message="kind must be the name of a kind, such as CiliumNode; correct it"
	Kind string `json:"kind"`

	// namespace is the namespace of the objects. If unset, objects of all namespaces
	// are considered. Must not be set if the kind is cluster-scoped.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace,omitempty"`

	// matchLabels specifies labels that the objects must carry. Other objects are
	// neither transferred nor stored. If unset, all objects are considered.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="matchLabels has a key that is not a label key; write it as name or example.com/name"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// nodeBy specifies how the node of an object is determined. If several objects
	// are found for one node, the expression must be true for all of them. With
	// Name, that is possible only if the objects are namespaced and namespace is
	// unset.
	// +optional
	// +kubebuilder:default=Name
	NodeBy NodeBy `json:"nodeBy,omitempty"`

	// nodeLabel is the key of the label whose value is the name of the node. Required
	// when nodeBy is Label, and must not be set otherwise.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="nodeLabel must be a label key; write it as name or example.com/name"
	NodeLabel string `json:"nodeLabel,omitempty"`

	// nodeField is the path of the field whose value is the name of the node, such as
	// spec.nodeName. Names that contain other characters than letters, digits, '-'
	// and '_' are written as in metadata.annotations['example.com/node']. Required
	// when nodeBy is Field, and must not be set otherwise.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches(r\"^[A-Za-z_][A-Za-z0-9_-]*(\\.[A-Za-z_][A-Za-z0-9_-]*|\\['[^'\\]]+'\\])*$\")",message="nodeField must be a path of fields, such as spec.nodeName; correct it"
	NodeField string `json:"nodeField,omitempty"`

	// expression is a CEL expression that must return true for the object, which is
	// the variable object. If it reads a field that does not exist, the signal is
	// unknown: use has(object.status.x), or object.?status.x.orValue(""). The limits
	// are those of the signal expression. If the expression and nodeField read only
	// metadata, only the metadata of the objects is transferred.
	//
	// nodegate cannot determine in which boot the object was written.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^[^(\\[{]*([(\\[{][^(\\[{]*){0,100}$')",message="expression must have at most 100 opening brackets; split it into several signals"
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'(?s)(opt(Flat)?Map.*){4}')",message="expression must use optMap and optFlatMap at most 3 times in total; use orValue or hasValue instead"
	Expression string `json:"expression"`
}

// NodeBy specifies how the node of an object is determined.
//
// +kubebuilder:validation:Enum=Name;Label;Field;Owner
type NodeBy string

const (
	// NodeByName means that the object has the node's name.
	NodeByName NodeBy = "Name"
	// NodeByLabel means that the label nodeLabel contains the node's name.
	NodeByLabel NodeBy = "Label"
	// NodeByField means that the field nodeField contains the node's name.
	NodeByField NodeBy = "Field"
	// NodeByOwner means that the object's first owner reference of kind Node is to
	// the node.
	NodeByOwner NodeBy = "Owner"
)

// DeepCopyInto copies the signal into out. It is written manually because
// controller-gen cannot copy a map whose values are of an alias type.
func (s *ObjectSignal) DeepCopyInto(out *ObjectSignal) {
	*out = *s
	out.MatchLabels = maps.Clone(s.MatchLabels)
}

// DeepCopy returns a copy of the signal.
func (s *ObjectSignal) DeepCopy() *ObjectSignal {
	if s == nil {
		return nil
	}
	out := new(ObjectSignal)
	s.DeepCopyInto(out)
	return out
}
