// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json" // as Kubernetes has it: names are case-sensitive

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// storedGate is a NodeGate as the API server has it. What is stored need not be
// what this version of the API has: the definition may be, or have been, that of
// another. One gate that cannot be read is no reason to be blind to the others,
// and is not taken for one that does not exist (see NodeGate.ReadError).
type storedGate struct{ v1alpha1.NodeGate }

// storedGates is a list of them.
type storedGates struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []storedGate `json:"items"`
}

func addStoredGates(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("NodeGate"), &storedGate{})
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("NodeGateList"), &storedGates{})
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
}

// UnmarshalJSON reads as much as can be read. It fails for what is no object of
// the API server's at all.
func (g *storedGate) UnmarshalJSON(raw []byte) error {
	err := utiljson.Unmarshal(raw, &g.NodeGate)
	if err == nil {
		return nil
	}
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := utiljson.Unmarshal(raw, &head); err != nil {
		return err
	}
	g.NodeGate = v1alpha1.NodeGate{TypeMeta: head.TypeMeta, ObjectMeta: head.ObjectMeta}
	var body struct { // without the status, which is ours and will be written anew
		Spec v1alpha1.NodeGateSpec `json:"spec"`
	}
	if utiljson.Unmarshal(raw, &body) == nil {
		g.Spec = body.Spec
		return nil
	}
	g.ReadError = err.Error()
	var taints struct {
		Spec struct {
			Taint        v1alpha1.Taint  `json:"taint"`
			RecloseTaint *v1alpha1.Taint `json:"recloseTaint"`
		} `json:"spec"`
	}
	if utiljson.Unmarshal(raw, &taints) == nil {
		g.Spec.Taint, g.Spec.RecloseTaint = taints.Spec.Taint, taints.Spec.RecloseTaint
	}
	return nil
}

// DeepCopyObject implements runtime.Object.
func (g *storedGate) DeepCopyObject() runtime.Object {
	return &storedGate{*g.DeepCopy()}
}

// DeepCopyObject implements runtime.Object.
func (l *storedGates) DeepCopyObject() runtime.Object {
	out := &storedGates{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, storedGate{*l.Items[i].DeepCopy()})
	}
	return out
}
