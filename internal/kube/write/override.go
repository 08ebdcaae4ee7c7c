// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// ErrNoTaint is returned when a node does not have the taint.
var ErrNoTaint = errors.New("the taint is not on the node")

// OverrideWriter writes manual overrides to nodes with the caller's credentials. Each
// write is one patch, which is applied only to the Node that was read, and only if the
// annotation or taint has not changed since.
type OverrideWriter struct {
	nodes  nodePatcher
	dryRun []string
}

// NewOverrideWriter returns an OverrideWriter. dryRun is passed to the API server;
// metav1.DryRunAll makes all writes dry runs.
func NewOverrideWriter(config *rest.Config, dryRun []string) (*OverrideWriter, error) {
	client, err := kubernetes.NewForConfig(restconfig.Core(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for nodes: %w", err)
	}
	return &OverrideWriter{nodes: client.CoreV1().Nodes(), dryRun: dryRun}, nil
}

// Override writes the override of a gate on a node that was read, or removes it if text
// is empty. Errors wrap ErrConflict, ErrGone or ErrDenied if these apply.
func (h *OverrideWriter) Override(ctx context.Context, node *corev1.Node, gateName, text string) error {
	key := v1alpha1.OverrideAnnotationPrefix + gateName
	before, exists := node.Annotations[key]
	a := annotations{created: map[string]string{}, exist: len(node.Annotations) > 0}
	a.write(key, before, exists, text)
	return h.patch(ctx, node, a.operations())
}

// RemoveTaint removes a taint, by key and effect, from a node that was read. It returns
// ErrNoTaint if the node does not have it.
func (h *OverrideWriter) RemoveTaint(ctx context.Context, node *corev1.Node, taint v1alpha1.Taint) error {
	i := indexOf(node.Spec.Taints, taint.Core())
	if i < 0 {
		return ErrNoTaint
	}
	path := taintsPath + "/" + strconv.Itoa(i)
	return h.patch(ctx, node, append(testTaint(path, node.Spec.Taints[i]), remove(path)))
}

func (h *OverrideWriter) patch(ctx context.Context, node *corev1.Node, ops []operation) error {
	if len(ops) == 0 {
		return nil
	}
	body, err := json.Marshal(append([]operation{test(uidPath, node.UID)}, ops...))
	if err != nil {
		return fmt.Errorf("encoding the patch of node %s: %w", node.Name, err)
	}
	_, err = h.nodes.Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: v1alpha1.OverrideFieldManager, DryRun: h.dryRun})
	if err != nil {
		return fmt.Errorf("changing node %s: %w", node.Name, classify(err))
	}
	return nil
}
