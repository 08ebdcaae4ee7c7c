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
	utiljson "k8s.io/apimachinery/pkg/util/json" // field names are case-sensitive, as in the API server
)

// envelope contains the fields of an AdmissionReview that are used. No others are
// decoded.
type envelope struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request"`
}

// request contains the fields of an AdmissionRequest that are used.
type request struct {
	UID         types.UID                   `json:"uid"`
	Name        string                      `json:"name"`
	Operation   admissionv1.Operation       `json:"operation"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	Object      json.RawMessage             `json:"object"`
}

// decode decodes an AdmissionReview and returns its request.
func decode(body []byte) (*request, error) {
	var r envelope
	if err := utiljson.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if r.Kind != "AdmissionReview" || r.APIVersion != admissionv1.SchemeGroupVersion.String() || r.Request == nil || r.Request.UID == "" {
		return nil, fmt.Errorf("the request is not an AdmissionReview of %s that has a request with a UID", admissionv1.SchemeGroupVersion)
	}
	return r.Request, nil
}

func (r *request) createsNode() bool {
	nodes := metav1.GroupVersionResource{Group: corev1.GroupName, Version: "v1", Resource: "nodes"}
	return r.Operation == admissionv1.Create && r.Resource == nodes && r.SubResource == ""
}

// node contains the fields of a Node that matter at birth.
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

// Limits of the lists, checked before decoding: the smallest entry has three bytes of
// JSON, but needs more than fifty bytes of memory.
const (
	maxLabels = 16 << 10
	// maxAnnotationEntries is more than the API server accepts, which limits names and
	// values to 256 KiB in total.
	maxAnnotationEntries = 100_000
)

var (
	errLabels      = fmt.Errorf("the Node has more than %d labels", maxLabels)
	errAnnotations = errors.New("the Node has more annotations than the API server accepts")
)

type nodeLabels labels.Set

// UnmarshalJSON implements json.Unmarshaler.
func (l *nodeLabels) UnmarshalJSON(raw []byte) error {
	if entries(raw) > maxLabels {
		return errLabels
	}
	*l = nil // if the field occurs twice, the last one counts
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

// nodeTaints are a Node's taints. If there are too many, the list is empty.
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

// entries returns the number of entries of an array or object, which must be valid JSON.
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
