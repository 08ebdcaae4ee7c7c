// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nodegate/nodegate/internal/gate"
)

const (
	// maxRequest bounds a request. A Node that etcd takes has no more than a
	// megabyte and a half, and JSON is at most twice as long.
	maxRequest = 4 << 20
	// readTimeout is as long as the API server waits for an answer.
	readTimeout = 5 * time.Second
)

// Handler answers the API server. Whatever it does not understand it answers
// with an HTTP error, which failurePolicy Ignore turns into an unchanged Node,
// and never with a refusal. (controller-runtime's own handler refuses what it
// cannot read, and whatever made it panic.)
type Handler struct {
	// Gates are those that close at birth; false while they are not known.
	Gates func() ([]gate.Gate, bool)
	// Log is told what an answer lacks.
	Log logr.Logger
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, status, err := read(w, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	gates, known := h.Gates()
	if !known {
		http.Error(w, "the gates are not known yet", http.StatusServiceUnavailable)
		return
	}
	answer, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: h.respond(gates, request),
	})
	if err != nil {
		http.Error(w, "writing the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // whom could we tell?
}

// respond answers a request. The answer is yes.
func (h *Handler) respond(gates []gate.Gate, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	if !createsNode(request) {
		return response
	}
	operations, err := patch(gates, request.Object.Raw)
	if err == nil && len(operations) > 0 {
		if response.Patch, err = json.Marshal(operations); err == nil {
			kind := admissionv1.PatchTypeJSONPatch
			response.PatchType = &kind
		}
	}
	if err != nil {
		h.Log.Error(err, "cannot close gates on a new node", "node", request.Name)
		response.Warnings = []string{"nodegate closed no gate: " + err.Error()}
	}
	return response
}

func createsNode(r *admissionv1.AdmissionRequest) bool {
	nodes := metav1.GroupVersionResource{Group: corev1.GroupName, Version: "v1", Resource: "nodes"}
	return r.Operation == admissionv1.Create && r.Resource == nodes && r.SubResource == ""
}

// read reads a request; if it cannot, it returns the HTTP status that says why.
func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, int, error) {
	if r.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("the method is %s, not POST", r.Method)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("the content type is %q, not application/json", r.Header.Get("Content-Type"))
	}
	// A connection that cannot have a deadline is a test's.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err)
	}
	var review admissionv1.AdmissionReview
	if err := utiljson.Unmarshal(body, &review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Request == nil || review.Request.UID == "" {
		return nil, http.StatusBadRequest, fmt.Errorf("the request is no AdmissionReview of %s with a request and its UID", admissionv1.SchemeGroupVersion)
	}
	return review.Request, http.StatusOK, nil
}
