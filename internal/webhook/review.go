// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// request contains the fields of an AdmissionRequest that are used.
type request struct {
	UID         types.UID
	Name        string
	Operation   admissionv1.Operation
	Resource    metav1.GroupVersionResource
	SubResource string
	Object      json.RawMessage
}

// decode decodes an AdmissionReview and returns its request, whose Object is a part of
// body. The API server can nest a Node as deeply as a decoder permits. The review is
// nested more deeply, so it is decoded field by field.
func decode(body []byte) (*request, error) {
	var kind, version string
	var inner json.RawMessage
	if err := decodeFields(body, map[string]any{"kind": &kind, "apiVersion": &version, "request": &inner}); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if kind != "AdmissionReview" || version != admissionv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("the request is not an AdmissionReview of %s", admissionv1.SchemeGroupVersion)
	}
	var r request
	if err := decodeFields(inner, map[string]any{
		"uid": &r.UID, "name": &r.Name, "operation": &r.Operation,
		"resource": &r.Resource, "subResource": &r.SubResource, "object": &r.Object,
	}); err != nil {
		return nil, fmt.Errorf("reading the request of the AdmissionReview: %w", err)
	}
	if r.UID == "" {
		return nil, errors.New("the request of the AdmissionReview has no UID")
	}
	return &r, nil
}

func (r *request) createsNode() bool {
	nodes := metav1.GroupVersionResource{Group: corev1.GroupName, Version: "v1", Resource: "nodes"}
	return r.Operation == admissionv1.Create && r.Resource == nodes && r.SubResource == ""
}

// node contains the fields of a Node that matter at birth.
type node struct {
	Metadata *struct {
		Labels      json.RawMessage `json:"labels"` // see node.labels
		Annotations nodeAnnotations `json:"annotations"`
	} `json:"metadata"`
	Spec *struct {
		Taints nodeTaints `json:"taints"`
	} `json:"spec"`
	Status struct {
		NodeInfo struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// labels returns the labels that the gates read. No others are decoded: a Node can have
// any number of them, and their JSON is short compared with the memory that they need.
func (n *node) labels(gates []gate.Gate) (labels.Set, error) {
	raw := n.Metadata.Labels
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	read, set := labelKeys(gates), labels.Set{}
	return set, fields(raw, func(key, text []byte) error {
		if !read[string(key)] {
			return nil
		}
		var value string
		if err := utiljson.Unmarshal(text, &value); err != nil {
			return fmt.Errorf("reading label %s: %w", key, err)
		}
		set[string(key)] = value // if the key occurs twice, the last one counts
		return nil
	})
}

// labelKeys returns the keys of all labels on which the gates' decision at birth depends.
func labelKeys(gates []gate.Gate) map[string]bool {
	keys := map[string]bool{v1alpha1.OptOutLabel: true, v1alpha1.PlainOptOutLabel: true}
	for i := range gates {
		requirements, _ := gates[i].Selector.Requirements()
		for _, r := range requirements {
			keys[r.Key()] = true
		}
	}
	return keys
}

// nodeAnnotations are a Node's annotations. If there are too many, the map is empty. They are
// counted before they are decoded: the shortest has seven bytes of JSON, but needs more than
// fifty bytes of memory.
type nodeAnnotations struct {
	all     map[string]string
	tooMany bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *nodeAnnotations) UnmarshalJSON(raw []byte) error {
	*a = nodeAnnotations{tooMany: entries(raw) > maxAnnotationsKept} // if the field occurs twice, the last one counts
	if a.tooMany {
		return nil
	}
	return utiljson.Unmarshal(raw, &a.all)
}

// nodeTaints are a Node's taints. If there are too many, the list is empty. They are
// counted before they are decoded, as annotations are.
type nodeTaints struct {
	list    []corev1.Taint
	tooMany bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *nodeTaints) UnmarshalJSON(raw []byte) error {
	*t = nodeTaints{tooMany: entries(raw) > maxTaints}
	if t.tooMany {
		return nil
	}
	return utiljson.Unmarshal(raw, &t.list)
}
