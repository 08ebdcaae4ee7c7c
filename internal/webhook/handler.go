// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// Handler answers the API server. It never rejects a Node. It answers requests that it
// cannot read with an HTTP error; because of failurePolicy Ignore, the Node is then
// created unchanged. (controller-runtime's handler would reject such requests, and
// requests that cause a panic.)
type Handler struct {
	// Gates returns the gates that close at birth, and false while they are unknown. The
	// handler does not modify them.
	Gates func() ([]gate.Gate, bool)
	// Log receives errors that prevented gates from closing.
	Log logr.Logger

	once   sync.Once
	limits *limits
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(func() { h.limits = newLimits() })
	if status, err := acceptable(r); err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	done, status, err := h.limits.admit(r.Context(), r.ContentLength)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	defer done()
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
		return
	}
	h.answer(w, r, body)
}

// answer decodes and answers a request. The number of concurrent requests is limited.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, body []byte) {
	if h.limits.decoding.Acquire(r.Context(), 1) != nil {
		return // the client has gone away
	}
	defer h.limits.decoding.Release(1)
	request, err := decode(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
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
	_, _ = w.Write(answer) // an error means that the client has gone away
}

// respond returns the response to a request, which is always allowed.
func (h *Handler) respond(gates []gate.Gate, request *request) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	if !request.createsNode() {
		return response
	}
	operations, err := patch(gates, request.Object)
	if err == nil && len(operations) > 0 {
		if response.Patch, err = json.Marshal(operations); err == nil {
			kind := admissionv1.PatchTypeJSONPatch
			response.PatchType = &kind
		}
	}
	if err != nil {
		h.Log.Error(err, "cannot close gates on a new node", "node", request.Name)
		response.Warnings = []string{"nodegate closed no gates on the node: " + err.Error()}
	}
	return response
}

// acceptable checks method and content type. If they are not those of the API server's
// requests, it returns an HTTP status and an error.
func acceptable(r *http.Request) (status int, err error) {
	if r.Method != http.MethodPost {
		return http.StatusMethodNotAllowed, fmt.Errorf("the method is %s, not POST", r.Method)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, fmt.Errorf("the content type is %q, not application/json", r.Header.Get("Content-Type"))
	}
	return 0, nil
}
