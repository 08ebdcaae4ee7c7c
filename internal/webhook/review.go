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
	utiljson "k8s.io/apimachinery/pkg/util/json" // as Kubernetes has it: names are case-sensitive
)

// envelope is what is used of an AdmissionReview. Nothing else is decoded.
type envelope struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request"`
}

// request is what is used of an AdmissionRequest.
type request struct {
	UID         types.UID                   `json:"uid"`
	Name        string                      `json:"name"`
	Operation   admissionv1.Operation       `json:"operation"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	Object      json.RawMessage             `json:"object"`
}

// decode reads a review.
func decode(body []byte) (*request, error) {
	var r envelope
	if err := utiljson.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if r.Kind != "AdmissionReview" || r.APIVersion != admissionv1.SchemeGroupVersion.String() || r.Request == nil || r.Request.UID == "" {
		return nil, fmt.Errorf("the request is no AdmissionReview of %s with a request and its UID", admissionv1.SchemeGroupVersion)
	}
	return r.Request, nil
}

func (r *request) createsNode() bool {
	nodes := metav1.GroupVersionResource{Group: corev1.GroupName, Version: "v1", Resource: "nodes"}
	return r.Operation == admissionv1.Create && r.Resource == nodes && r.SubResource == ""
}

// node is what matters of a Node that is being created.
type node struct {
	Metadata *struct {
		Labels      nodeLabels      `json:"labels"`
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

// Bounds of lists, checked before they are decoded: the smallest entry takes three
// bytes of JSON and fifty and more of memory.
const (
	maxLabels = 16 << 10
	// maxAnnotationEntries is more than the API server takes, which bounds the names
	// and values by 256 KiB together.
	maxAnnotationEntries = 100_000
)

var (
	errLabels      = fmt.Errorf("the Node has more than %d labels", maxLabels)
	errAnnotations = errors.New("the Node has more annotations than the API server takes")
)

type nodeLabels labels.Set

// UnmarshalJSON implements json.Unmarshaler.
func (l *nodeLabels) UnmarshalJSON(raw []byte) error {
	if entries(raw) > maxLabels {
		return errLabels
	}
	*l = nil // of a name that is there twice, the last counts
	return utiljson.Unmarshal(raw, (*map[string]string)(l))
}

type nodeAnnotations map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (a *nodeAnnotations) UnmarshalJSON(raw []byte) error {
	if entries(raw) > maxAnnotationEntries {
		return errAnnotations
	}
	*a = nil
	return utiljson.Unmarshal(raw, (*map[string]string)(a))
}

// nodeTaints are a Node's taints, or that they are too many.
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

// entries is how many entries an array or object has. The JSON is sound.
func entries(raw []byte) int {
	n, depth, quoted := 1, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n
}
