// SPDX-License-Identifier: Apache-2.0

// Package gateclient creates a client for NodeGates. A NodeGate that this version cannot
// read is returned with its ReadError instead of failing the whole list.
package gateclient

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json" // as Kubernetes has it: names are case-sensitive
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// StoredGate is a NodeGate as it is stored in the API server. It may have been stored
// under the CustomResourceDefinition of another version. A gate that cannot be decoded, or
// has a value that is not in enums, does not hide other gates, and is not mistaken for one
// that does not exist: it is returned with a ReadError.
type StoredGate struct{ v1alpha1.NodeGate }

// StoredGates is a list of StoredGate.
type StoredGates struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []StoredGate `json:"items"`
}

// New returns a client for NodeGates that decodes them as StoredGate.
func New(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	addStoredGates(scheme)
	config = restconfig.Unlimited(config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

func addStoredGates(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("NodeGate"), &StoredGate{})
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("NodeGateList"), &StoredGates{})
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
}

// UnmarshalJSON decodes as much of a NodeGate as possible. It fails only if raw is not a
// Kubernetes object.
func (g *StoredGate) UnmarshalJSON(raw []byte) error {
	readError := utiljson.Unmarshal(raw, &g.NodeGate)
	if readError != nil {
		var err error
		if readError, err = g.decodeParts(raw, readError); err != nil {
			return err
		}
	}
	if readError == nil {
		readError = unknownValue("spec", reflect.ValueOf(&g.Spec))
	}
	if readError == nil {
		return nil
	}
	g.ReadError = readError.Error()
	g.Spec = v1alpha1.NodeGateSpec{Taint: g.Spec.Taint, RecloseTaint: g.Spec.RecloseTaint}
	g.Status = v1alpha1.NodeGateStatus{}
	return nil
}

// decodeParts decodes the parts of a NodeGate that can be decoded, after decoding the whole
// has failed with a cause. It returns the cause unless the spec can be decoded: the
// controller will overwrite the status.
func (g *StoredGate) decodeParts(raw []byte, cause error) (readError, err error) {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := utiljson.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	g.NodeGate = v1alpha1.NodeGate{TypeMeta: head.TypeMeta, ObjectMeta: head.ObjectMeta}
	var body struct {
		Spec v1alpha1.NodeGateSpec `json:"spec"`
	}
	if utiljson.Unmarshal(raw, &body) == nil {
		g.Spec = body.Spec
		return nil, nil
	}
	var taints struct {
		Spec struct {
			Taint        v1alpha1.Taint  `json:"taint"`
			RecloseTaint *v1alpha1.Taint `json:"recloseTaint"`
		} `json:"spec"`
	}
	if utiljson.Unmarshal(raw, &taints) == nil {
		g.Spec.Taint, g.Spec.RecloseTaint = taints.Spec.Taint, taints.Spec.RecloseTaint
	}
	return cause, nil
}

// DeepCopyObject implements runtime.Object.
func (g *StoredGate) DeepCopyObject() runtime.Object {
	return &StoredGate{*g.DeepCopy()}
}

// DeepCopyObject implements runtime.Object.
func (l *StoredGates) DeepCopyObject() runtime.Object {
	out := &StoredGates{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, StoredGate{*l.Items[i].DeepCopy()})
	}
	return out
}
