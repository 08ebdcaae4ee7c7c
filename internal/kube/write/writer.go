// SPDX-License-Identifier: Apache-2.0

// Package write writes decisions to Nodes: each as one guarded JSON Patch that the API
// server applies only while the Node is as it was when the decision was made. It also
// writes the manual overrides and the tolerations of kubectl gate.
package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// Reasons why a decision was not written, or may not have been. After any other error, such as that
// of an API server that is overloaded or of a webhook that cannot be called, the write may be
// retried.
var (
	// ErrConflict is returned when the Node has changed since it was read, or another
	// Node has its name. The caller must read it and decide again.
	ErrConflict = errors.New("the node has changed since it was read")
	// ErrGone is returned when the Node no longer exists.
	ErrGone = errors.New("the node no longer exists")
	// ErrDenied is returned when the API server denies the write, and will deny it again
	// until something else changes. The error contains its message.
	ErrDenied = errors.New("the API server denied the write")
	// ErrRejected is wrapped, in addition to ErrDenied, if the denial is about the
	// content of the write: the write or the resulting Node is invalid or too large, or
	// an admission policy or webhook does not allow it. It is not wrapped if the caller
	// lacks the permission, or if an API server that has just started has not yet read the
	// roles or the parameters of its policies: in these cases, any content is denied.
	ErrRejected = errors.New("content rejected")
	// ErrUnanswered is returned when the API server has not answered in time, or could not be
	// reached. It may have carried out the write. Every status except that of a timeout is an
	// answer, also 429 and 503: the connection works, and another replica would receive the same
	// answer.
	ErrUnanswered = errors.New("no answer from the API server")
	// ErrUnsent is returned when the decision cannot be written, so that nothing was sent.
	ErrUnsent = errors.New("nothing was sent to the API server")
)

// Applier writes decisions.
type Applier interface {
	// Apply writes a decision about a node in one patch, and returns the resulting Node,
	// decoded as far as facts require. If there is nothing to write, it returns nil.
	// Conditions of the Node are written only if the decision changes nothing else.
	// Errors wrap ErrConflict, ErrGone, ErrDenied, ErrUnanswered or ErrUnsent if these apply.
	Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error)
}

var _ Applier = (*Writer)(nil)

// Writer writes decisions to the API server.
type Writer struct {
	nodes   nodePatcher
	options metav1.PatchOptions
}

// nodePatcher is the method of a client that a Writer requires.
type nodePatcher interface {
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// NewWriter returns a Writer. There is no rate limit unless config sets one.
func NewWriter(config *rest.Config) (*Writer, error) {
	return NewWriterAs(config, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
}

// NewWriterAs returns a Writer with other patch options than the controller's.
func NewWriterAs(config *rest.Config, options metav1.PatchOptions) (*Writer, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noting{next} })
	client, err := clients.ThinClient(config, wire.Options{})
	if err != nil {
		return nil, err
	}
	return &Writer{nodes: corev1client.New(client).Nodes(), options: options}, nil
}

// Apply implements Applier.
func (w *Writer) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	patch, err := Patch(n, d)
	var subresources []string
	if err == nil && patch == nil {
		patch, err = conditionPatch(n, d)
		subresources = []string{"status"}
	}
	if err != nil {
		return nil, wrap(ErrUnsent, err)
	}
	if patch == nil {
		return nil, nil
	}
	ctx, last := withLastAnswer(ctx)
	node, err := w.nodes.Patch(ctx, n.Name, types.JSONPatchType, patch, w.options, subresources...)
	if err != nil {
		return nil, fmt.Errorf("patching node %s: %w", n.Name, classify(last.explain(err)))
	}
	return node, nil
}

// classify wraps an error of a patch in the error that states its meaning for the
// decision.
func classify(err error) error {
	switch { // the code of a denial may be any, such as that of an object that does not exist
	case clients.DeniedByAdmission(err) && !strings.Contains(err.Error(), notEvaluated):
		return wrap(ErrDenied, wrap(ErrRejected, err))
	case clients.DeniedByAdmission(err), apierrors.IsForbidden(err):
		return wrap(ErrDenied, err)
	case clients.DoesNotExist(err):
		return wrap(ErrGone, err)
	case apierrors.IsConflict(err):
		return wrap(ErrConflict, err)
	case apierrors.IsRequestEntityTooLargeError(err), strings.Contains(err.Error(), tooLarge):
		return wrap(ErrDenied, wrap(ErrRejected, err))
	case !isAnswer(err):
		return wrap(ErrUnanswered, err)
	case !apierrors.IsInvalid(err):
		return err
	case outdated(err):
		return wrap(ErrConflict, err)
	}
	// The resulting Node is invalid.
	return wrap(ErrDenied, wrap(ErrRejected, err))
}

// notEvaluated is in the message of a ValidatingAdmissionPolicy that denies a request
// because it cannot be evaluated, for example because its parameter is missing.
const notEvaluated = "failed to configure"

// tooLarge is in the message of a write that would make an object larger than etcd accepts. The
// API server reports it as an internal error.
const tooLarge = "etcdserver: request is too large"

// IsUncertain reports whether a write may have been carried out although it returned an error.
func IsUncertain(err error) bool {
	return err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrGone) && !errors.Is(err, ErrDenied) && !errors.Is(err, ErrUnsent)
}

// wrap wraps err in kind.
func wrap(kind, err error) error { return fmt.Errorf("%w: %w", kind, err) }

// isAnswer reports whether the API server has answered a request that had this error or none. Its errors
// always have a status. A timeout in the API server, or in a proxy, also has one.
func isAnswer(err error) bool {
	var postponed *postponedError
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &postponed) || errors.As(err, &status) && !apierrors.IsTimeout(err)
}

// outdated reports whether a patch does not apply to the current Node: a test failed, a
// path does not exist, or a taint that it adds exists. In this case the API server's
// error has no reason; a validation error always names a field.
func outdated(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	if details == nil {
		return true
	}
	return !slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool {
		return c.Field != "" && c.Type != metav1.CauseTypeFieldValueDuplicate
	})
}
