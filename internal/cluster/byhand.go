// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// handFieldManager is the name under which people write Nodes with 'kubectl gate'.
const handFieldManager = "kubectl-gate"

// ErrNoTaint means that a taint is not on the node.
var ErrNoTaint = errors.New("the taint is not on the node")

// Hand writes what a person wants of single nodes, with that one's rights. Each
// write is one patch, which applies only to the very Node that was seen, as far as
// it concerns what is written.
type Hand struct {
	nodes  nodePatcher
	dryRun []string
}

// NewHand returns a Hand. What it writes is tried out only, where that is asked
// for by metav1.DryRunAll.
func NewHand(config *rest.Config, dryRun []string) (*Hand, error) {
	client, err := kubernetes.NewForConfig(coreConfig(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for nodes: %w", err)
	}
	return &Hand{nodes: client.CoreV1().Nodes(), dryRun: dryRun}, nil
}

// Override writes the override of a gate on a node that was read, or removes it
// where the text is empty. Errors wrap ErrConflict, ErrGone or ErrDenied where
// these apply.
func (h *Hand) Override(ctx context.Context, node *corev1.Node, gateName, text string) error {
	key := v1alpha1.OverrideAnnotationPrefix + gateName
	before, exists := node.Annotations[key]
	a := annotations{created: map[string]string{}, exist: len(node.Annotations) > 0}
	if a.write(key, before, exists, text); len(a.created) > 0 {
		a.ops = append(a.ops, test(annotationsPath, null), add(annotationsPath, a.created))
	}
	return h.patch(ctx, node, a.ops)
}

// TakeOff takes a taint off a node that was read. It fails with ErrNoTaint where
// there is none of this key and effect.
func (h *Hand) TakeOff(ctx context.Context, node *corev1.Node, taint v1alpha1.Taint) error {
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == taint.Key && t.Effect == corev1.TaintEffect(taint.Effect)
	})
	if i < 0 {
		return ErrNoTaint
	}
	path := taintsPath + "/" + strconv.Itoa(i)
	return h.patch(ctx, node, append(testTaint(path, node.Spec.Taints[i]), remove(path)))
}

func (h *Hand) patch(ctx context.Context, node *corev1.Node, ops []operation) error {
	if len(ops) == 0 {
		return nil
	}
	body, err := json.Marshal(append([]operation{test(uidPath, node.UID)}, ops...))
	if err != nil {
		return fmt.Errorf("encoding the patch of node %s: %w", node.Name, err)
	}
	_, err = h.nodes.Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: handFieldManager, DryRun: h.dryRun})
	if err != nil {
		return fmt.Errorf("changing node %s: %w", node.Name, classify(err))
	}
	return nil
}
