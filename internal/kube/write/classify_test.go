// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// classify recognizes the API server's responses to a patch. TestWriterConflicts and
// TestWriterDenied provoke such responses.
func TestClassify(t *testing.T) {
	node, taints := corev1.Resource("nodes"), field.NewPath("spec", "taints").Index(1)
	invalid := func(e *field.Error) error {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "n", field.ErrorList{e})
	}
	generic := func(code int, message string) error {
		return apierrors.NewGenericServerResponse(code, "", node, "n", message, 0, false)
	}
	denied := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	for name, c := range map[string]struct {
		err, want error // nil: an answer of none of the kinds; the same patch is retried
	}{
		"a test of the patch failed": {generic(http.StatusUnprocessableEntity, "testing value /metadata/uid failed: test failed"), ErrConflict},
		"a path does not exist":      {generic(http.StatusUnprocessableEntity, "replace operation does not apply: doc is missing path"), ErrConflict},
		"the taint exists":           {invalid(field.Duplicate(taints, "k:NoSchedule")), ErrConflict},
		"an invalid taint":           {invalid(field.Invalid(taints, "not a value", "no")), ErrRejected},
		"conflict":                   {apierrors.NewConflict(node, "n", errors.New("changed")), ErrConflict},
		"not found":                  {apierrors.NewNotFound(node, "n"), ErrGone},
		"not found, by a proxy":      {apierrors.NewGenericServerResponse(http.StatusNotFound, "", node, "n", "404 page not found", 0, true), nil},
		"forbidden":                  {apierrors.NewForbidden(node, "n", errors.New("no right")), ErrDenied},
		"denied by a policy":         {denied(http.StatusUnprocessableEntity, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), ErrRejected},
		"a policy is not evaluated":  {denied(http.StatusForbidden, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found"), ErrDenied},
		"denied by a webhook, 404":   {denied(http.StatusNotFound, `admission webhook "w" denied the request: no tenant`), ErrRejected},
		"denied by a webhook, 409":   {denied(http.StatusConflict, `admission webhook "w" denied the request: no`), ErrRejected},
		"denied by a webhook, 500":   {denied(http.StatusInternalServerError, `admission webhook "w" denied the request: no`), ErrRejected},
		"too many requests":          {apierrors.NewTooManyRequests("later", 1), nil},
		"too many operations":        {apierrors.NewRequestEntityTooLargeError("10001 operations"), ErrRejected},
		"too large for etcd":         {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), ErrRejected},
		"internal error":             {apierrors.NewInternalError(errors.New("etcd")), nil},
		"a webhook does not respond": {apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), nil},
		"unavailable":                {apierrors.NewServiceUnavailable("starting"), nil},
		"expired credentials":        {apierrors.NewUnauthorized("expired"), nil},
		"timeout in the API server":  {apierrors.NewTimeoutError("etcd", 1), ErrUnanswered},
		"timeout in a proxy":         {generic(http.StatusGatewayTimeout, "<html>"), ErrUnanswered},
		"no response":                {context.DeadlineExceeded, ErrUnanswered},
		"no connection":              {&url.Error{Op: "Patch", URL: "https://example.com", Err: syscall.ECONNREFUSED}, ErrUnanswered},
	} {
		t.Run(name, func(t *testing.T) {
			got := classify(fmt.Errorf("patching: %w", c.err))
			if !errors.Is(got, c.err) {
				t.Errorf("%v does not wrap %v", got, c.err)
			}
			for _, kind := range []error{ErrConflict, ErrGone, ErrDenied, ErrRejected, ErrUnanswered, ErrUnsent} {
				want := errors.Is(c.want, kind) || errors.Is(kind, ErrDenied) && errors.Is(c.want, ErrRejected)
				if is := errors.Is(got, kind); is != want {
					t.Errorf("errors.Is(%v, %v) is %v, want %v", got, kind, is, want)
				}
			}
		})
	}
}
