// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// CatchUp implements Source.
func (g apiSource) CatchUp(ctx context.Context, has func(*v1alpha1.NodeGate) bool) error {
	return reflector.CatchUp(ctx, func(ctx context.Context) error {
		late, err := g.firstWithout(ctx, has)
		switch {
		case apierrors.IsNotFound(err), err == nil && late == "":
			return nil
		case err != nil:
			return fmt.Errorf("listing NodeGates: %w", err)
		}
		return fmt.Errorf("a change of gate %s has not been observed", late)
	})
}

// firstWithout returns the name of a gate in the API server for which has returns false, or "".
func (g apiSource) firstWithout(ctx context.Context, has func(*v1alpha1.NodeGate) bool) (name string, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := g.listWatch.ListWithContext(ctx, options)
		if err != nil {
			return "", err
		}
		page := list.(*gateclient.StoredGates)
		for i := range page.Items {
			if ng := &page.Items[i].NodeGate; !has(ng) {
				return ng.Name, nil
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return "", nil
		}
	}
}
