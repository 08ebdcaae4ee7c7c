// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
)

// catchUpTimeout is how long CatchUp waits for the watch. A watch that is later than that would keep
// all gates on all nodes as they are.
const (
	catchUpTimeout  = 15 * time.Second
	catchUpInterval = 250 * time.Millisecond
)

// CatchUp implements Source. Nothing else shows how late a watch is.
func (g apiSource) CatchUp(ctx context.Context, has func(*v1alpha1.NodeGate) bool) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for {
		late, err := g.firstWithout(ctx, has)
		switch {
		case apierrors.IsNotFound(err), err == nil && late == "":
			return nil
		case apierrors.IsForbidden(err):
			return fmt.Errorf("listing NodeGates: %w", err)
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("listing NodeGates: %w", err)
			}
			return fmt.Errorf("a change of gate %s has not been observed", late)
		case <-time.After(catchUpInterval):
		}
	}
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
