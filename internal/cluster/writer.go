// SPDX-License-Identifier: Apache-2.0

package cluster

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

	"github.com/nodegate/nodegate/internal/cluster/wire"
	"github.com/nodegate/nodegate/internal/gate"
)

// FieldManager is the name under which Nodes are written.
const FieldManager = "nodegate"

// Why a decision was not written. An error that is none of these (a timeout,
// a server that cannot be reached or is too busy) is worth another try.
var (
	// ErrConflict means that the Node is not any more what was decided about, or
	// another Node of the same name: look again, decide again.
	ErrConflict = errors.New("the node has changed meanwhile")
	// ErrGone means that the Node does not exist any more.
	ErrGone = errors.New("the node does not exist any more")
	// ErrDenied means that the API server does not let us write this, and will
	// not until somebody changes something. The error tells what it said.
	ErrDenied = errors.New("the API server denied the write")
)

// Applier writes decisions. It is what a Writer does.
type Applier interface {
	// Apply writes a decision about a node in one patch, and returns the Node as
	// it is after it, with no more in it than facts are made of. If there is
	// nothing to write, the Node is nil. Errors wrap ErrConflict, ErrGone or
	// ErrDenied where these apply.
	Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error)
}

var _ Applier = (*Writer)(nil)

// Writer writes decisions to the API server.
type Writer struct {
	nodes   nodePatcher
	options metav1.PatchOptions
}

// nodePatcher is the one method that a Writer needs of a client.
type nodePatcher interface {
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// NewWriter returns a Writer. Unless the configuration sets a rate limit there
// is none.
func NewWriter(config *rest.Config) (*Writer, error) {
	return NewWriterAs(config, metav1.PatchOptions{FieldManager: FieldManager})
}

// NewWriterAs is NewWriter for somebody else than the controller, whose patches
// have options of their own.
func NewWriterAs(config *rest.Config, options metav1.PatchOptions) (*Writer, error) {
	client, err := thinClient(config, wire.Options{})
	if err != nil {
		return nil, err
	}
	return &Writer{nodes: corev1client.New(client).Nodes(), options: options}, nil
}

// Apply implements Applier.
func (w *Writer) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	patch, err := Patch(n, d)
	if err != nil || patch == nil {
		return nil, err
	}
	node, err := w.nodes.Patch(ctx, n.Name, types.JSONPatchType, patch, w.options)
	if err != nil {
		return nil, fmt.Errorf("patching node %s: %w", n.Name, classify(err))
	}
	return node, nil
}

// classify tells what an error of a patch means for the decision.
func classify(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return as(ErrGone, err)
	case deniedByAdmission(err), apierrors.IsForbidden(err):
		return as(ErrDenied, err)
	case apierrors.IsConflict(err):
		return as(ErrConflict, err)
	case !hasCode(err, http.StatusUnprocessableEntity):
		return err
	case outdated(err):
		return as(ErrConflict, err)
	}
	// The Node as it would be breaks a rule of the API.
	return as(ErrDenied, err)
}

// as makes an error one of a kind, and keeps what it is.
func as(kind, err error) error { return fmt.Errorf("%w: %w", kind, err) }

// deniedByAdmission recognizes policies and webhooks, which choose their
// status codes freely. They are told only by the API server's own words.
func deniedByAdmission(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return strings.Contains(message, "denied request") || strings.Contains(message, "denied the request")
}

// outdated recognizes a patch that does not fit the Node any more: one of its
// tests failed, a path has vanished, or a taint that it adds is there already.
// The API server gives a patch that does not apply no status reason of its
// own, but a validation error always names a field.
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

func hasCode(err error, code int32) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == code
}
