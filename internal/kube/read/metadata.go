// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// NodeSelection selects Nodes. The zero value selects all.
type NodeSelection struct {
	// Name is the name of a Node; empty for no restriction.
	Name string
	// Labels is a label selector; empty for no restriction.
	Labels string
}

func (s NodeSelection) options(o metav1.ListOptions) metav1.ListOptions {
	if o.LabelSelector = s.Labels; s.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
	}
	return o
}

// NodeMetadata returns the selected Nodes with the facts that their metadata contain:
// name, labels, records and overrides. Taints, conditions and the boot ID are missing.
// The response is small even for a large fleet.
func (r *Reader) NodeMetadata(ctx context.Context, s NodeSelection) ([]*gate.Node, error) {
	list, err := r.nodeMetadata().List(ctx, s.options(metav1.ListOptions{}))
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	store, nodes := nodestore.New(nodestore.Options{}), make([]*gate.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, store.Convert(&corev1.Node{ObjectMeta: list.Items[i].ObjectMeta}))
	}
	return nodes, nil
}

func (r *Reader) nodeMetadata() metadata.ResourceInterface {
	return r.names.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
}
